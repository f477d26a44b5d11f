#include "kernels/expert_products.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/custom_class.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include "kernels/expert_gate.h"
#include "kernels/parallel.h"
#include "kernels/weight_gradient_queue.h"

namespace strait::kernels {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Rows of a product, at most: threads share those of an expert that has many.
constexpr std::int64_t kMostRows = 512;

// Adjacent rows of one expert's rows, or of a gradient of one of its matrices.
struct Part {
  std::size_t of = 0;  // which of them
  std::int64_t begin = 0;
  std::int64_t count = 0;
  std::int64_t cost = 0;
};

void add_parts(std::vector<Part>& parts, Part whole, std::int64_t cost_of_row) {
  const std::int64_t pieces = (whole.count + kMostRows - 1) / kMostRows;
  const std::int64_t end = whole.begin + whole.count;
  for (std::int64_t i = 0; i < pieces; ++i) {
    Part part = whole;
    // Both ends follow from the piece's number, so pieces differ by one row at most and cover all.
    part.begin = end - whole.count * (pieces - i) / pieces;
    part.count = end - whole.count * (pieces - i - 1) / pieces - part.begin;
    part.cost = part.count * cost_of_row;
    parts.push_back(part);
  }
}

void compute_parts(const std::vector<Part>& parts,
                   const std::function<void(const Part&)>& compute) {
  // Experts have very different numbers of rows. Threads share by cost, the largest tasks first.
  std::vector<std::int64_t> costs;
  costs.reserve(parts.size());
  for (const Part& part : parts) costs.push_back(part.cost);
  share_tasks(costs, [&](std::size_t i) {
    const at::NoGradGuard no_grad;  // threads have their own
    compute(parts[i]);
  });
}

// What forward and backward know of the layer. Nothing in it has a gradient.
struct Layer : public torch::CustomClassHolder {
  std::vector<ExpertMatrices> experts;
  ExpertForm form;
  std::vector<std::int64_t> counts;
  at::Tensor token_of_row;
  at::Tensor choices;
  at::Tensor places;

  std::int64_t inner() const { return experts.front().down.size(form.input_first ? 0 : 1); }
  // [in, out]
  at::Tensor matrix(const at::Tensor& stored) const {
    const at::Tensor values = stored.detach();
    return form.input_first ? values : values.t();
  }
  std::vector<Part> parts() const {
    std::vector<Part> all;
    std::int64_t begin = 0;
    // Rows are sorted by expert, so the rows of an expert are adjacent.
    for (std::size_t expert = 0; expert < counts.size(); ++expert) {
      add_parts(all, {expert, begin, counts[expert]}, 1);
      begin += counts[expert];
    }
    return all;
  }
  cpu::ExpertGate gate(const at::Tensor& inner_values, const at::Tensor& weights) const {
    cpu::ExpertGate gate;
    gate.inner = inner_values.const_data_ptr<float>();
    gate.weights = weights.const_data_ptr<float>();
    gate.width = inner();
    gate.slope = static_cast<float>(form.clamped.slope);
    gate.limit = static_cast<float>(form.clamped.limit);
    return gate;
  }
};

// Rows between matrices that a thread computes, at least.
constexpr std::int64_t kGateRows = 16;

// Each part gathers its own rows, which its product then finds in the core's cache.
void gather(const at::Tensor& tokens, const Layer& layer, const Part& part,
            const at::Tensor& rows) {
  at::Tensor into = rows.narrow(0, part.begin, part.count);
  at::index_select_out(into, tokens, 0, layer.token_of_row.narrow(0, part.begin, part.count));
}

void compute_inner(const Layer& layer, const Part& part, const at::Tensor& input,
                   const at::Tensor& inner) {
  const ExpertMatrices& expert = layer.experts[part.of];
  at::Tensor into = inner.narrow(0, part.begin, part.count);
  if (!expert.gate.defined()) {
    const at::Tensor up = layer.matrix(expert.up);
    if (expert.up_bias.defined()) {
      at::addmm_out(into, expert.up_bias.detach(), input, up);
    } else {
      at::mm_out(into, input, up);
    }
    return;
  }
  at::Tensor gates = into.narrow(1, 0, layer.inner());
  at::Tensor others = into.narrow(1, layer.inner(), layer.inner());
  at::mm_out(gates, input, layer.matrix(expert.gate));
  at::mm_out(others, input, layer.matrix(expert.up));
}

void compute_results(const Layer& layer, const Part& part, const at::Tensor& inner,
                     const at::Tensor& weights, const at::Tensor& results) {
  const ExpertMatrices& expert = layer.experts[part.of];
  const at::Tensor own_weights = weights.narrow(0, part.begin, part.count);
  const at::Tensor product = at::empty({part.count, layer.inner()}, inner.options());
  cpu::ExpertGate all = layer.gate(inner.narrow(0, part.begin, part.count), own_weights);
  all.product = product.mutable_data_ptr<float>();
  parallel_for(part.count, kGateRows,
               [&](std::int64_t first, std::int64_t last) { cpu::expert_gate(all, first, last); });
  at::Tensor into = results.narrow(0, part.begin, part.count);
  at::mm_out(into, product, layer.matrix(expert.down));
  if (expert.down_bias.defined()) {
    // The product has the row's weight already. The bias needs it, too.
    into.addmm_(own_weights.unsqueeze(1), expert.down_bias.detach().unsqueeze(0));
  }
}

// The values of all rows that the backward makes.
struct RowGradients {
  at::Tensor input;           // the tokens again; undefined: no matrix needs them
  at::Tensor slopes;          // of the results, without their weights
  at::Tensor inner;           // [rows, 2 · inner]
  at::Tensor product;         // times the weight; undefined: no matrix needs it
  at::Tensor input_gradient;  // undefined: not required
  at::Tensor weights;         // [rows]
};

void gate_gradients(const Layer& layer, const Part& part, const at::Tensor& inner,
                    const at::Tensor& weights, const at::Tensor& slopes, RowGradients& to) {
  cpu::ExpertGateGradient all;
  all.forward = layer.gate(inner.narrow(0, part.begin, part.count),
                           weights.narrow(0, part.begin, part.count));
  all.slopes = slopes.const_data_ptr<float>();
  const std::int64_t width = layer.inner();
  all.inner_gradient = to.inner.mutable_data_ptr<float>() + part.begin * 2 * width;
  all.weight_gradient = to.weights.mutable_data_ptr<float>() + part.begin;
  if (to.product.defined()) {
    all.forward.product = to.product.mutable_data_ptr<float>() + part.begin * width;
  }
  parallel_for(part.count, kGateRows, [&](std::int64_t first, std::int64_t last) {
    cpu::expert_gate_gradient(all, first, last);
  });
}

void compute_row_gradients(const Layer& layer, const Part& part, const at::Tensor& inner,
                           const at::Tensor& weights, RowGradients& to) {
  const ExpertMatrices& expert = layer.experts[part.of];
  const auto own = [&](const at::Tensor& all) { return all.narrow(0, part.begin, part.count); };
  const at::Tensor slopes = at::mm(own(to.slopes), layer.matrix(expert.down).t());
  gate_gradients(layer, part, inner, weights, slopes, to);
  if (expert.down_bias.defined()) {
    // The weight multiplies the bias, so its gradient has a part from there.
    own(to.weights).add_(at::mv(own(to.slopes), expert.down_bias.detach()));
  }
  if (!to.input_gradient.defined()) return;
  at::Tensor gradient = own(to.input_gradient);
  const at::Tensor up = layer.matrix(expert.up).t();
  if (!expert.gate.defined()) {
    at::mm_out(gradient, own(to.inner), up);
    return;
  }
  const std::int64_t width = layer.inner();
  at::mm_out(gradient, own(to.inner).narrow(1, 0, width), layer.matrix(expert.gate).t());
  gradient.addmm_(own(to.inner).narrow(1, width, width), up);
}

// The gradients of matrices as parts of rows of each, and those of biases.
struct LeafGradients {
  struct Addition {
    at::Tensor sum;    // of a matrix [out, in], or [in, out]; or of a bias
    at::Tensor left;   // [rows, values of a row of `sum`]
    at::Tensor right;  // [rows, rows of `sum`]; of a bias what its rows are multiplied by
  };
  std::vector<Addition> additions;
  std::vector<at::Tensor> leaves;

  void add(const at::Tensor& leaf, const at::Tensor& left, const at::Tensor& right) {
    if (!leaf.defined() || !leaf.requires_grad()) return;
    leaves.push_back(leaf);
    additions.push_back({leaf_gradient(leaf), left, right});
  }

  void compute() const {
    // Parts are rows of a sum. Each is computed by one thread, over all rows of its expert: no two
    // threads add to the same value.
    std::vector<Part> parts;
    for (std::size_t i = 0; i < additions.size(); ++i) {
      const at::Tensor& sum = additions[i].sum;
      const bool bias = sum.dim() == 1;
      add_parts(parts, {i, 0, bias ? 1 : sum.size(0)},
                additions[i].left.size(0) * sum.size(bias ? 0 : 1));
    }
    compute_parts(parts, [&](const Part& part) {
      const Addition& one = additions[part.of];
      if (one.sum.dim() == 1) {
        one.sum.addmv_(one.left.t(), one.right);
        return;
      }
      one.sum.narrow(0, part.begin, part.count)
          .addmm_(one.right.narrow(1, part.begin, part.count).t(), one.left);
    });
  }
};

LeafGradients leaf_gradients(const Layer& layer, const RowGradients& rows,
                             const at::Tensor& weights) {
  LeafGradients all;
  const auto add = [&](const at::Tensor& leaf, const at::Tensor& input, const at::Tensor& slopes) {
    const bool first = layer.form.input_first;
    all.add(leaf, first ? slopes : input, first ? input : slopes);
  };
  const std::int64_t width = layer.inner();
  std::int64_t begin = 0;
  for (std::size_t i = 0; i < layer.counts.size(); ++i) {
    const std::int64_t count = layer.counts[i];
    // An expert without rows leaves its sums as they are.
    if (count == 0) continue;
    const auto own = [&](const at::Tensor& values) {
      return values.defined() ? values.narrow(0, begin, count) : values;
    };
    const ExpertMatrices& expert = layer.experts[i];
    const at::Tensor inner = own(rows.inner);
    const bool separate = expert.gate.defined();
    if (separate) add(expert.gate, own(rows.input), inner.narrow(1, 0, width));
    add(expert.up, own(rows.input), separate ? inner.narrow(1, width, width) : inner);
    add(expert.down, own(rows.product), own(rows.slopes));
    if (expert.up_bias.defined())
      all.add(expert.up_bias, inner, at::ones({count}, inner.options()));
    all.add(expert.down_bias, own(rows.slopes), own(weights));
    begin += count;
  }
  return all;
}

bool any_trained(const Layer& layer, std::initializer_list<at::Tensor ExpertMatrices::*> members) {
  return std::ranges::any_of(layer.experts, [&](const ExpertMatrices& expert) {
    return std::ranges::any_of(members, [&](const auto member) {
      return (expert.*member).defined() && (expert.*member).requires_grad();
    });
  });
}

struct ExpertProducts : public torch::autograd::Function<ExpertProducts> {
  // The graph has the leaves, so that this has a backward if any of them is trained.
  static at::Tensor forward(AutogradContext* context, const at::Tensor& tokens,
                            const at::Tensor& weights, at::TensorList leaves,
                            const c10::intrusive_ptr<Layer>& layer) {
    const std::int64_t rows = layer->token_of_row.numel();
    const at::Tensor input = at::empty({rows, tokens.size(1)}, tokens.options());
    const at::Tensor inner = at::empty({rows, 2 * layer->inner()}, tokens.options());
    const at::Tensor results = at::empty_like(input);
    const at::Tensor by_row = weights.flatten().index_select(0, layer->choices);
    compute_parts(layer->parts(), [&](const Part& part) {
      gather(tokens, *layer, part, input);
      compute_inner(*layer, part, input.narrow(0, part.begin, part.count), inner);
      compute_results(*layer, part, inner, by_row, results);
    });
    // The backward gathers tokens again. Kept rows would be `ways` times as many.
    const bool again = any_trained(*layer, {&ExpertMatrices::gate, &ExpertMatrices::up});
    context->save_for_backward({again ? tokens : at::Tensor(), by_row, inner});
    context->saved_data["leaves"] = static_cast<std::int64_t>(leaves.size());
    context->saved_data["layer"] = c10::IValue::make_capsule(layer);
    return sum_rows(results, layer->places);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor& tokens = saved[0];
    const at::Tensor& by_row = saved[1];
    const at::Tensor& inner = saved[2];
    const auto layer =
        c10::static_intrusive_pointer_cast<Layer>(context->saved_data["layer"].toCapsule());
    const auto room = [&](std::int64_t width) {
      return at::empty({by_row.size(0), width}, inner.options());
    };
    const std::int64_t hidden = gradients[0].size(1);
    RowGradients rows;
    if (tokens.defined()) rows.input = room(hidden);
    if (any_trained(*layer, {&ExpertMatrices::down})) rows.product = room(layer->inner());
    if (context->needs_input_grad(0)) rows.input_gradient = room(hidden);
    rows.slopes = room(hidden);
    rows.inner = at::empty_like(inner);
    rows.weights = at::empty_like(by_row);
    compute_parts(layer->parts(), [&](const Part& part) {
      if (rows.input.defined()) gather(tokens, *layer, part, rows.input);
      gather(gradients[0], *layer, part, rows.slopes);
      compute_row_gradients(*layer, part, inner, by_row, rows);
    });
    variable_list result(3 + static_cast<std::size_t>(context->saved_data["leaves"].toInt()));
    if (rows.input_gradient.defined()) {
      result[0] = sum_rows(std::exchange(rows.input_gradient, {}), layer->places);
    }
    // From rows, which are sorted by expert, back to each token's choices.
    result[1] = rows.weights.index_select(0, layer->places.flatten()).view(layer->places.sizes());
    const LeafGradients leaves = leaf_gradients(*layer, rows, by_row);
    // With a split backward they wait for its weight-gradient action.
    if (!leaves.leaves.empty()) add_now_or_later({leaves.leaves, [leaves] { leaves.compute(); }});
    return result;
  }
};

}  // namespace

bool expert_products_take(const at::Tensor& tokens, const std::vector<ExpertMatrices>& experts) {
  const auto fits = [](const at::Tensor& values) {
    return !values.defined() || (values.is_cpu() && values.scalar_type() == at::kFloat);
  };
  return fits(tokens) && std::ranges::all_of(experts, [&](const ExpertMatrices& expert) {
           const bool separate_bias = expert.gate.defined() && expert.up_bias.defined();
           return fits(expert.gate) && fits(expert.up) && fits(expert.up_bias) &&
                  fits(expert.down) && fits(expert.down_bias) && !separate_bias;
         });
}

at::Tensor expert_products(const at::Tensor& tokens, const at::Tensor& weights,
                           const ExpertRows& rows, const std::vector<ExpertMatrices>& experts,
                           const ExpertForm& form) {
  std::vector<at::Tensor> leaves;
  for (const ExpertMatrices& expert : experts) {
    for (const at::Tensor& leaf :
         {expert.gate, expert.up, expert.up_bias, expert.down, expert.down_bias}) {
      if (leaf.defined()) leaves.push_back(leaf);
    }
  }
  auto layer = c10::make_intrusive<Layer>();
  layer->experts = experts;
  layer->form = form;
  layer->counts = rows.counts;
  layer->token_of_row = rows.tokens;
  layer->choices = rows.choices;
  layer->places = rows.places;
  return ExpertProducts::apply(tokens, weights, at::TensorList(leaves), layer);
}

}  // namespace strait::kernels

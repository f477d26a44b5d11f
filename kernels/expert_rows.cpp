#include "kernels/expert_rows.h"

#include <ATen/ATen.h>
#include <ATen/Dispatch.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <numeric>
#include <optional>

#include "kernels/kernel_tensors.h"
#include "kernels/parallel.h"

namespace strait::kernels {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

template <class Value>
void sum_on_cpu(const at::Tensor& values, const float* weights, const at::Tensor& places,
                const at::Tensor& sums) {
  const std::int64_t width = values.size(1);
  const std::int64_t ways = places.size(1);
  const auto* from = values.const_data_ptr<Value>();
  const auto* row = places.const_data_ptr<std::int64_t>();
  auto* to = sums.mutable_data_ptr<Value>();
  parallel_for(places.size(0), 8, [&](std::int64_t begin, std::int64_t end) {
    // A token's rows are added in the order of its choices, whichever thread does it.
    std::vector<float> sum(static_cast<std::size_t>(width));
    for (std::int64_t token = begin; token < end; ++token) {
      std::fill(sum.begin(), sum.end(), 0.0F);
      for (std::int64_t way = token * ways; way < (token + 1) * ways; ++way) {
        const Value* values_of_row = from + row[way] * width;
        const float weight = weights == nullptr ? 1.0F : weights[way];
        for (std::int64_t i = 0; i < width; ++i) {
          sum[static_cast<std::size_t>(i)] += weight * static_cast<float>(values_of_row[i]);
        }
      }
      for (std::int64_t i = 0; i < width; ++i) {
        to[token * width + i] = static_cast<Value>(sum[static_cast<std::size_t>(i)]);
      }
    }
  });
}

// Without weights: plain sums.
at::Tensor sum_of_choices(const at::Tensor& values, const std::optional<at::Tensor>& weights,
                          const at::Tensor& places) {
  const std::int64_t width = values.size(1);
  if (!values.is_cpu()) {
    // index_add would add in any order on a GPU. A gather and a sum over one dimension have one
    // order.
    at::Tensor rows = values.index_select(0, places.flatten())
                          .view({places.size(0), places.size(1), width})
                          .to(at::kFloat);
    if (weights) rows = rows * weights->to(at::kFloat).unsqueeze(2);
    return rows.sum(1).to(values.scalar_type());
  }
  const at::Tensor from = values.contiguous();
  at::Tensor sums = at::empty({places.size(0), width}, values.options());
  at::Tensor factors;
  if (weights) factors = weights->to(at::kFloat).contiguous();
  const float* factor = weights ? factors.const_data_ptr<float>() : nullptr;
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kBFloat16, at::kHalf, from.scalar_type(), "sum_of_choices",
                                  [&] { sum_on_cpu<scalar_t>(from, factor, places, sums); });
  return sums;
}

struct GatherRows : public torch::autograd::Function<GatherRows> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& tokens,
                            const at::Tensor& token_of_row, const at::Tensor& places) {
    context->save_for_backward({places});
    return tokens.index_select(0, token_of_row);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const at::Tensor places = context->get_saved_variables()[0];
    return {sum_of_choices(gradients[0], std::nullopt, places), at::Tensor(), at::Tensor()};
  }
};

struct CombineRows : public torch::autograd::Function<CombineRows> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& values,
                            const at::Tensor& weights, const at::Tensor& token_of_row,
                            const at::Tensor& choices, const at::Tensor& places) {
    context->save_for_backward({values, weights, token_of_row, choices, places});
    return sum_of_choices(values, weights, places);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor& values = saved[0];
    const at::Tensor& weights = saved[1];
    at::Tensor slopes = gradients[0].index_select(0, saved[2]);
    // The gradient of a weight is the product of its row with the gradient of the token's sum.
    const at::Tensor by_row = (slopes * values).sum(1, /*keepdim=*/false, at::kFloat);
    const at::Tensor weight_gradient =
        by_row.index_select(0, saved[4].flatten()).view(weights.sizes()).to(weights.scalar_type());
    const at::Tensor factors = weights.flatten().index_select(0, saved[3]).unsqueeze(1);
    slopes.mul_(factors);
    return {slopes, weight_gradient, at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

struct WithSlope : public torch::autograd::Function<WithSlope> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& probabilities,
                            const at::Tensor& slope) {
    context->save_for_backward({slope});
    // A view, because autograd does not allow that a function returns its input.
    return probabilities.view_as(probabilities);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    return {gradients[0] + context->get_saved_variables()[0], at::Tensor()};
  }
};

}  // namespace

ExpertRows sort_by_expert(const at::Tensor& chosen, std::int64_t experts) {
  const std::int64_t ways = chosen.size(1);
  const at::Tensor on_host = chosen.to(at::kCPU).contiguous();
  const auto* expert = on_host.const_data_ptr<std::int64_t>();
  ExpertRows rows;
  rows.counts.resize(static_cast<std::size_t>(experts));
  for (std::int64_t i = 0; i < on_host.numel(); ++i) {
    ++rows.counts.at(static_cast<std::size_t>(expert[i]));
  }
  // A stable counting sort: the rows of an expert stay in the order of the tokens.
  std::vector<std::int64_t> next(rows.counts.size());
  std::exclusive_scan(rows.counts.begin(), rows.counts.end(), next.begin(), std::int64_t{0});
  const at::Tensor tokens = at::empty({on_host.numel()}, at::kLong);
  const at::Tensor choices = at::empty({on_host.numel()}, at::kLong);
  const at::Tensor places = at::empty(on_host.sizes(), at::kLong);
  for (std::int64_t i = 0; i < on_host.numel(); ++i) {
    const std::int64_t row = next[static_cast<std::size_t>(expert[i])]++;
    tokens.mutable_data_ptr<std::int64_t>()[row] = i / ways;
    choices.mutable_data_ptr<std::int64_t>()[row] = i;
    places.mutable_data_ptr<std::int64_t>()[i] = row;
  }
  rows.tokens = on_device(tokens, chosen.device());
  rows.choices = on_device(choices, chosen.device());
  rows.places = on_device(places, chosen.device());
  return rows;
}

at::Tensor gather_rows(const at::Tensor& tokens, const ExpertRows& rows) {
  return GatherRows::apply(tokens, rows.tokens, rows.places);
}

at::Tensor sum_rows(const at::Tensor& values, const at::Tensor& places) {
  return sum_of_choices(values, std::nullopt, places);
}

at::Tensor combine_rows(const at::Tensor& values, const at::Tensor& weights,
                        const ExpertRows& rows) {
  return CombineRows::apply(values, weights, rows.tokens, rows.choices, rows.places);
}

at::Tensor with_slope(const at::Tensor& probabilities, const at::Tensor& slope) {
  return WithSlope::apply(probabilities, slope);
}

}  // namespace strait::kernels

#include "kernels/cross_entropy.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/DeviceGuard.h>

#include <algorithm>
#include <stdexcept>
#include <string>

#include "kernels/gpu_layers.h"
#include "kernels/kernel_tensors.h"
#include "kernels/weight_gradient_queue.h"

namespace strait::kernels {
namespace {

// Every chunk reads the whole weight, and reads and writes its gradient, so small chunks cost time:
// with 50257 tokens and width 768, 8 MiB took 1.5 times as long as 32. With rows of a quarter of
// the width, the logits are a quarter of the weight. For a moment a chunk exists twice.
constexpr std::int64_t kLeastLogitBytes = 32 << 20;
constexpr std::int64_t kMostLogitBytes = 256 << 20;

void check_shapes(const Projection& projection, const at::Tensor& hidden,
                  const at::Tensor& targets) {
  TORCH_INTERNAL_ASSERT(hidden.dim() == 2 && targets.dim() == 1 &&
                            hidden.size(0) == targets.size(0) &&
                            hidden.size(1) == projection.weight.size(1),
                        "cross entropy of hidden ", hidden.sizes(), " with targets ",
                        targets.sizes(), " and weight ", projection.weight.sizes());
}

// The derivative of the cap, computed from the capped logits.
at::Tensor cap_slope(const at::Tensor& capped, double softcap) {
  return capped.div(softcap).square_().neg_().add_(1);
}

// In the first call of a process, MKL selects the exp of the processor without a lock. If several
// threads call it together, one may use a coarser one. Computing one number on one thread first
// gives all later calls the same bits.
void choose_exp_once() { static const at::Tensor kFirst = at::zeros({1}).exp_(); }

// The log-probabilities of the targets of a chunk, whose sum is subtracted from the loss; turns the
// logits into probabilities. One fused pass and one exp, because separate operators over the logits
// cost more than their product.
at::Tensor consume_logits(at::Tensor& logits, const at::Tensor& targets) {
  logits = at::log_softmax(logits, 1);
  at::Tensor chosen = logits.gather(1, targets.unsqueeze(1)).squeeze(1).to(at::kDouble);
  choose_exp_once();
  logits.exp_();
  return chosen;
}

// The same, and also turns the logits into their gradients.
at::Tensor turn_into_slopes(at::Tensor& logits, const at::Tensor& targets, double softcap) {
  at::Tensor inner;
  if (softcap > 0) inner = cap_slope(logits, softcap);
  at::Tensor chosen = consume_logits(logits, targets);
  // One-dimensional, because two-dimensional deterministic algorithms of some versions of libtorch
  // wait for the device.
  const std::int64_t rows = logits.size(0);
  const at::Tensor first = at::arange(rows, targets.options()).mul_(logits.size(1));
  logits.view({-1}).scatter_add_(0, first.add_(targets), at::full({rows}, -1.0, logits.options()));
  if (inner.defined()) logits.mul_(inner);
  return chosen;
}

// The same by one kernel, for logits in the type of the hidden values; they become the slopes.
at::Tensor consume_by_kernel(at::Tensor& logits, const at::Tensor& targets, bool slopes) {
  const c10::OptionalDeviceGuard on_it(logits.device());
  at::Tensor chosen = at::empty({logits.size(0)}, logits.options().dtype(at::kFloat));
  cuda::cross_entropy(
      stream_of(logits), {element_of(logits.scalar_type()), logits.size(0), logits.size(1)},
      logits.const_data_ptr(), targets.const_data_ptr<std::int64_t>(),
      chosen.mutable_data_ptr<float>(), slopes ? logits.mutable_data_ptr() : nullptr);
  return chosen;
}

bool loss_kernel_takes(const Projection& projection, const at::Tensor& hidden,
                       const at::Tensor& targets) {
  return layer_kernels_take(hidden) && projection.weight.scalar_type() == hidden.scalar_type() &&
         !projection.bias.defined() && projection.softcap <= 0 && targets.is_contiguous();
}

// Chunks of nearly equal size: a last one with a single row would be a matrix-vector product, which
// is slower and sums less exactly.
std::int64_t even_chunk(std::int64_t count, const at::Tensor& weight, bool by_kernel) {
  std::int64_t most = cross_entropy_rows(weight.size(0), weight.size(1));
  // The kernel needs the logits once, in their own type, instead of twice in float32; so more rows
  // fit.
  if (by_kernel) most *= 8 / weight.element_size();
  const std::int64_t chunks = std::max<std::int64_t>(1, (count + most - 1) / most);
  return std::max<std::int64_t>(1, (count + chunks - 1) / chunks);
}

at::Tensor zero_sum(const at::Tensor& hidden) {
  return at::zeros({}, hidden.options().dtype(at::kDouble).requires_grad(false));
}

}  // namespace

void check_targets(std::span<const std::int64_t> targets, std::int64_t vocabulary) {
  if (targets.empty()) return;
  const auto [low, high] = std::ranges::minmax(targets);
  if (low >= 0 && high < vocabulary) return;
  throw std::out_of_range("a target token is " + std::to_string(low < 0 ? low : high) +
                          ", but the model's vocabulary has tokens 0 to " +
                          std::to_string(vocabulary - 1) +
                          ": prepare the data with the model's own tokenizer");
}

Projection detached(const Projection& leaves) {
  return {leaves.weight.detach(), leaves.bias.defined() ? leaves.bias.detach() : at::Tensor(),
          leaves.softcap};
}

at::Tensor project_logits(const Projection& projection, const at::Tensor& hidden) {
  at::Tensor logits = at::mm(hidden, projection.weight.t()).to(at::kFloat);
  if (projection.bias.defined()) logits.add_(projection.bias);
  if (projection.softcap > 0) {
    logits.div_(projection.softcap).tanh_().mul_(projection.softcap);
  }
  return logits;
}

std::int64_t cross_entropy_rows(std::int64_t vocabulary, std::int64_t hidden) {
  const std::int64_t row_bytes = static_cast<std::int64_t>(sizeof(float)) * vocabulary;
  const std::int64_t rows =
      std::clamp(hidden / 4, kLeastLogitBytes / row_bytes, kMostLogitBytes / row_bytes);
  return std::max<std::int64_t>(1, rows);
}

CrossEntropyResult cross_entropy(const Projection& projection, const at::Tensor& hidden,
                                 const at::Tensor& targets, double scale,
                                 const Projection& gradient, const at::Tensor& weights) {
  const at::NoGradGuard no_grad;
  check_shapes(projection, hidden, targets);
  CrossEntropyResult result{zero_sum(hidden), {}};
  result.hidden_gradient = at::empty_like(hidden, at::MemoryFormat::Contiguous);
  const std::int64_t count = hidden.size(0);
  const bool by_kernel = loss_kernel_takes(projection, hidden, targets);
  const std::int64_t chunk = even_chunk(count, projection.weight, by_kernel);
  for (std::int64_t begin = 0; begin < count; begin += chunk) {
    const std::int64_t rows = std::min(chunk, count - begin);
    const at::Tensor input = hidden.narrow(0, begin, rows);
    const at::Tensor target = targets.narrow(0, begin, rows);
    at::Tensor slope;
    if (by_kernel) {
      slope = at::mm(input, projection.weight.t());
      result.loss_sum.sub_(consume_by_kernel(slope, target, /*slopes=*/true).sum(at::kDouble));
      if (weights.defined()) slope.mul_(weights.narrow(0, begin, rows).unsqueeze(1));
    } else {
      at::Tensor logits = project_logits(projection, input);
      result.loss_sum.sub_(turn_into_slopes(logits, target, projection.softcap).sum());
      if (weights.defined()) logits.mul_(weights.narrow(0, begin, rows).unsqueeze(1));
      if (gradient.bias.defined()) at::Tensor(gradient.bias).add_(logits.sum(0), scale);
      slope = logits.to(hidden.scalar_type());
    }
    // The scale is part of the products, which saves a pass over the logits.
    at::Tensor into = result.hidden_gradient.narrow(0, begin, rows);
    at::addmm_out(into, into, slope, projection.weight, /*beta=*/0, /*alpha=*/scale);
    if (gradient.weight.defined()) add_product(gradient.weight, slope.t(), input, scale);
  }
  return result;
}

namespace {

// Calls take() with the log-probabilities of each chunk of targets, in order.
template <class Take>
void each_chunk(const Projection& projection, const at::Tensor& hidden, const at::Tensor& targets,
                const Take& take) {
  const at::NoGradGuard no_grad;
  check_shapes(projection, hidden, targets);
  const std::int64_t count = hidden.size(0);
  const bool by_kernel = loss_kernel_takes(projection, hidden, targets);
  const std::int64_t chunk = even_chunk(count, projection.weight, by_kernel);
  for (std::int64_t begin = 0; begin < count; begin += chunk) {
    const std::int64_t rows = std::min(chunk, count - begin);
    const at::Tensor input = hidden.narrow(0, begin, rows);
    const at::Tensor target = targets.narrow(0, begin, rows);
    if (by_kernel) {
      at::Tensor logits = at::mm(input, projection.weight.t());
      take(consume_by_kernel(logits, target, /*slopes=*/false));
    } else {
      at::Tensor logits = project_logits(projection, input);
      take(consume_logits(logits, target));
    }
  }
}

}  // namespace

at::Tensor cross_entropy_loss(const Projection& projection, const at::Tensor& hidden,
                              const at::Tensor& targets) {
  at::Tensor sum = zero_sum(hidden);
  each_chunk(projection, hidden, targets,
             [&](const at::Tensor& chosen) { sum.sub_(chosen.sum(at::kDouble)); });
  return sum;
}

at::Tensor log_probabilities(const Projection& projection, const at::Tensor& hidden,
                             const at::Tensor& targets) {
  std::vector<at::Tensor> parts;
  each_chunk(projection, hidden, targets,
             [&](const at::Tensor& chosen) { parts.push_back(chosen.to(at::kDouble)); });
  return parts.empty() ? at::empty({0}, hidden.options().dtype(at::kDouble)) : at::cat(parts);
}

}  // namespace strait::kernels

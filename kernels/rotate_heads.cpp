#include "kernels/rotate_heads.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/custom_function.h>

namespace strait::kernels {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct Pair {
  at::Tensor first;
  at::Tensor second;
};

Pair pair_of(const at::Tensor& values, std::int64_t half, RotaryPairs pairs) {
  if (pairs == RotaryPairs::halves) {
    return {values.narrow(-1, 0, half), values.narrow(-1, half, half)};
  }
  const at::Tensor together = values.narrow(-1, 0, 2 * half).unflatten(-1, {half, 2});
  return {together.select(-1, 0), together.select(-1, 1)};
}

// The backward is the inverse rotation.
at::Tensor rotated(const at::Tensor& values, const at::Tensor& cosine, const at::Tensor& sine,
                   RotaryPairs pairs, bool inverse) {
  const std::int64_t half = cosine.size(-1);
  const std::int64_t rest = values.size(-1) - 2 * half;
  const at::Tensor cos = cosine.to(values.scalar_type()).unsqueeze(2);
  const at::Tensor sin = sine.to(values.scalar_type()).unsqueeze(2);
  at::Tensor result = at::empty(values.sizes(), values.options());
  const Pair from = pair_of(values, half, pairs);
  Pair into = pair_of(result, half, pairs);
  // A CPU is slow at writing 16-bit values to parts of rows: it computes the halves apart.
  const bool apart = values.is_cpu() && values.element_size() < 4;
  Pair made = apart ? Pair{at::mul(from.first, cos), at::mul(from.second, cos)} : into;
  if (!apart) {
    at::mul_out(made.first, from.first, cos);
    at::mul_out(made.second, from.second, cos);
  }
  const at::Tensor from_second = at::mul(from.second, sin);
  const at::Tensor from_first = at::mul(from.first, sin);
  if (inverse) {
    made.first.add_(from_second);
    made.second.sub_(from_first);
  } else {
    made.first.sub_(from_second);
    made.second.add_(from_first);
  }
  if (apart) {
    into.first.copy_(made.first);
    into.second.copy_(made.second);
  }
  if (rest > 0) result.narrow(-1, 2 * half, rest).copy_(values.narrow(-1, 2 * half, rest));
  return result;
}

struct Rotation : public torch::autograd::Function<Rotation> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& heads,
                            const at::Tensor& cosine, const at::Tensor& sine, std::int64_t pairs) {
    context->save_for_backward({cosine, sine});
    context->saved_data["pairs"] = pairs;
    return rotated(heads, cosine, sine, static_cast<RotaryPairs>(pairs), /*inverse=*/false);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const auto pairs = static_cast<RotaryPairs>(context->saved_data["pairs"].toInt());
    return {rotated(gradients[0], saved[0], saved[1], pairs, /*inverse=*/true), at::Tensor(),
            at::Tensor(), at::Tensor()};
  }
};

}  // namespace

at::Tensor rotate_heads(const at::Tensor& heads, const at::Tensor& cosine, const at::Tensor& sine,
                        RotaryPairs pairs) {
  TORCH_INTERNAL_ASSERT(heads.dim() == 4 && cosine.dim() == 3 && cosine.sizes() == sine.sizes() &&
                            2 * cosine.size(2) <= heads.size(3),
                        "a rotation of ", heads.sizes(), " by angles ", cosine.sizes());
  return Rotation::apply(heads, cosine, sine, static_cast<std::int64_t>(pairs));
}

}  // namespace strait::kernels

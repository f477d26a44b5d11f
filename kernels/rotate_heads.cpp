#include "kernels/rotate_heads.h"

#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <initializer_list>

#include "kernels/gpu_layers.h"
#include "kernels/kernel_tensors.h"

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

bool in_octets(std::initializer_list<std::int64_t> sizes) {
  return std::ranges::all_of(sizes, [](std::int64_t size) { return size % 8 == 0; });
}

// For consecutive heads, which may be part of a wider tensor.
bool rotation_kernel_takes(const at::Tensor& heads, std::int64_t half) {
  return layer_kernels_take(heads) && heads.numel() > 0 && half > 0 && heads.stride(3) == 1 &&
         (heads.size(0) == 1 || heads.stride(0) == heads.size(1) * heads.stride(1)) &&
         in_octets({half, heads.size(3), heads.stride(1), heads.stride(2), heads.storage_offset()});
}

at::Tensor rotated_by_kernel(const at::Tensor& heads, const at::Tensor& cosine,
                             const at::Tensor& sine, RotaryPairs pairs, bool inverse) {
  const c10::OptionalDeviceGuard on_it(heads.device());
  const HeadShape shape{element_of(heads.scalar_type()),
                        pairs == RotaryPairs::neighbours,
                        inverse,
                        heads.size(0) * heads.size(1),
                        heads.size(2),
                        heads.size(3),
                        cosine.size(-1),
                        heads.stride(1),
                        heads.stride(2)};
  const at::Tensor cos = cosine.to(heads.scalar_type()).contiguous();
  const at::Tensor sin = sine.to(heads.scalar_type()).contiguous();
  at::Tensor result = at::empty(heads.sizes(), heads.options());
  cuda::rotate_heads(stream_of(heads), shape, heads.const_data_ptr(), cos.const_data_ptr(),
                     sin.const_data_ptr(), result.mutable_data_ptr());
  return result;
}

// The backward is the inverse rotation.
at::Tensor rotated(const at::Tensor& values, const at::Tensor& cosine, const at::Tensor& sine,
                   RotaryPairs pairs, bool inverse) {
  const std::int64_t half = cosine.size(-1);
  if (rotation_kernel_takes(values, half))
    return rotated_by_kernel(values, cosine, sine, pairs, inverse);
  const std::int64_t rest = values.size(-1) - 2 * half;
  const at::Tensor cos = cosine.to(values.scalar_type()).unsqueeze(2);
  const at::Tensor sin = sine.to(values.scalar_type()).unsqueeze(2);
  at::Tensor result = at::empty(values.sizes(), values.options());
  const Pair from = pair_of(values, half, pairs);
  Pair into = pair_of(result, half, pairs);
  // A CPU is slow at writing 16-bit values to parts of rows, so it computes the halves separately.
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
                            cosine.size(0) == heads.size(0) && cosine.size(1) == heads.size(1) &&
                            2 * cosine.size(2) <= heads.size(3),
                        "a rotation of ", heads.sizes(), " by angles ", cosine.sizes());
  return Rotation::apply(heads, cosine, sine, static_cast<std::int64_t>(pairs));
}

}  // namespace strait::kernels

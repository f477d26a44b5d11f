#include "kernels/mxfp4.h"

#include <ATen/ATen.h>

namespace strait::kernels {

at::Tensor dequantize_mxfp4(const at::Tensor& blocks, const at::Tensor& scales) {
  TORCH_INTERNAL_ASSERT(blocks.dim() == 2 && blocks.size(0) == scales.numel(), "blocks ",
                        blocks.sizes(), " with scales ", scales.sizes());
  const at::Tensor halves = at::tensor({0.0F, 0.5F, 1.0F, 1.5F, 2.0F, 3.0F, 4.0F, 6.0F});
  const at::Tensor levels = at::cat({halves, halves.neg()});
  const at::Tensor codes =
      at::stack({blocks.bitwise_and(15), blocks.bitwise_right_shift(4)}, 2).to(at::kInt);
  // The byte is the exponent of a float32, except that 2^-127 has none.
  const at::Tensor exponents = scales.to(at::kInt);
  const at::Tensor factors = at::where(exponents.eq(0), at::full_like(exponents, 1 << 22),
                                       exponents.bitwise_left_shift(23))
                                 .view(at::kFloat);
  return levels.index_select(0, codes.flatten())
      .view({scales.size(0), scales.size(1), 2 * blocks.size(1)})
      .mul_(factors.unsqueeze(2))
      .flatten(1)
      .t()
      .contiguous();
}

}  // namespace strait::kernels

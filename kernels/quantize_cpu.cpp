#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/quantize_cpu.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include "kernels/differences-inl.h"
#include "kernels/processors.h"
#include "kernels/token_scratch.h"
#include "kernels/tokens-inl.h"

HWY_BEFORE_NAMESPACE();
namespace strait::kernels::HWY_NAMESPACE {

template <class T>
void quantize_elements(const T* from, const Values& shape, const GroupFormat& format,
                       const Draw& draw, std::uint8_t* out, SquareSums* sums) {
  const std::int64_t width = shape.width;
  TokenScratch& scratch = TokenScratch::of_thread(width);
  for (std::int64_t token = 0; token < shape.tokens; ++token) {
    TokenSquares squares;
    take_difference(from, NoBase(), width, format.group, scratch.values(), squares);
    const auto first_index = static_cast<std::uint32_t>(token * width);
    write_token(scratch, width, format, draw, first_index, out);
    if (sums != nullptr) {
      take_error(from, scratch.values(), width, squares);
      add_squares(squares, refused_groups(out, groups_of(format, width)), *sums);
    }
    from += width;
    out += token_bytes(format, width);
  }
}

void quantize_row(const Values& values, const GroupFormat& format, const Draw& draw,
                  std::uint8_t* out, SquareSums* sums) {
  const void* const data = values.data;
  switch (values.element) {
    case Element::float32:
      return quantize_elements(static_cast<const float*>(data), values, format, draw, out, sums);
    case Element::bfloat16:
      return quantize_elements(static_cast<const Bfloat16*>(data), values, format, draw, out, sums);
    case Element::float16:
      return quantize_elements(static_cast<const Float16*>(data), values, format, draw, out, sums);
  }
}

}  // namespace strait::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strait::kernels {

HWY_EXPORT(quantize_row);

void cpu::quantize(const Values& values, const GroupFormat& format, const Draw& draw,
                   std::byte* out, SquareSums* sums) {
  HWY_DYNAMIC_DISPATCH(quantize_row)
  (values, format, draw, reinterpret_cast<std::uint8_t*>(out), sums);
}

}  // namespace strait::kernels
#endif

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/quantize_change_cpu.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include "kernels/differences-inl.h"
#include "kernels/processors.h"
#include "kernels/token_scratch.h"
#include "kernels/tokens-inl.h"

HWY_BEFORE_NAMESPACE();
namespace strait::kernels::HWY_NAMESPACE {

// Writes one token's change since `base`; scratch.values() become what the bytes decode to.
template <class T, class Base>
HWY_INLINE void write_change(const T* from, Base base, std::uint32_t first_index,
                             std::int64_t width, const GroupFormat& format, const Draw& draw,
                             std::uint8_t* out, TokenScratch& scratch, TokenSquares& squares) {
  take_difference(from, base, width, format.group, scratch.values(), squares);
  write_token(scratch, width, format, draw, first_index, out);
}

template <class T>
void change_elements(const T* from, const Values& shape, const GroupFormat& format,
                     const Draw& draw, bool fresh, Bfloat16* entry, std::uint8_t* out,
                     SquareSums* sums) {
  const std::int64_t width = shape.width;
  TokenScratch& scratch = TokenScratch::of_thread(width);
  for (std::int64_t token = 0; token < shape.tokens; ++token) {
    const auto index = static_cast<std::uint32_t>(token * width);
    TokenSquares squares;
    if (fresh) {
      write_change(from, NoBase(), index, width, format, draw, out, scratch, squares);
      advance_entry(NoBase(), scratch.values(), width, entry);
    } else {
      write_change(from, entry, index, width, format, draw, out, scratch, squares);
      advance_entry(entry, scratch.values(), width, entry);
    }
    if (sums != nullptr) {
      take_error(from, scratch.values(), width, squares);
      add_squares(squares, refused_groups(out, groups_of(format, width)), *sums);
    }
    from += width;
    entry += width;
    out += token_bytes(format, width);
  }
}

void change_row(const Values& values, const GroupFormat& format, const Draw& draw, bool fresh,
                Bfloat16* entry, std::uint8_t* out, SquareSums* sums) {
  const void* const data = values.data;
  switch (values.element) {
    case Element::float32:
      return change_elements(static_cast<const float*>(data), values, format, draw, fresh, entry,
                             out, sums);
    case Element::bfloat16:
      return change_elements(static_cast<const Bfloat16*>(data), values, format, draw, fresh, entry,
                             out, sums);
    case Element::float16:
      return change_elements(static_cast<const Float16*>(data), values, format, draw, fresh, entry,
                             out, sums);
  }
}

}  // namespace strait::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strait::kernels {

HWY_EXPORT(change_row);

void cpu::quantize_change(const Values& values, const GroupFormat& format, const Draw& draw,
                          bool fresh, std::byte* entry, std::byte* out, SquareSums* sums) {
  HWY_DYNAMIC_DISPATCH(change_row)
  (values, format, draw, fresh, reinterpret_cast<Bfloat16*>(entry),
   reinterpret_cast<std::uint8_t*>(out), sums);
}

}  // namespace strait::kernels
#endif

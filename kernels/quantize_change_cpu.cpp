#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/quantize_change_cpu.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include "kernels/differences-inl.h"
#include "kernels/entries-inl.h"
#include "kernels/processors.h"

HWY_BEFORE_NAMESPACE();
namespace strait::kernels::HWY_NAMESPACE {

// Writes one token's change since `base`; scratch.values() become what the bytes decode to.
template <class T, class Base>
HWY_INLINE void write_change(const T* from, Base base, std::uint32_t first_index,
                             std::int64_t width, const GroupFormat& format, const Draw& draw,
                             std::uint8_t* out, TokenScratch& scratch, TokenSquares& squares) {
  take_difference(from, base, width, format.group, scratch.values(), squares);
  write_token(scratch, width, format, draw, first_index, kHugeBits, out);
}

template <class T>
void change_elements(const T* from, const Values& shape, const GroupFormat& format,
                     const Draw& draw, CacheFormat kind, bool fresh, std::uint8_t* entry,
                     std::uint8_t* out, SquareSums* sums) {
  const std::int64_t width = shape.width;
  TokenScratch& scratch = TokenScratch::of_thread(width);
  for (std::int64_t token = 0; token < shape.tokens; ++token) {
    const auto index = static_cast<std::uint32_t>(token * width);
    TokenSquares squares;
    if (kind == CacheFormat::bfloat16) {
      auto* const held = reinterpret_cast<Bfloat16*>(entry);
      if (fresh) {
        write_change(from, NoBase(), index, width, format, draw, out, scratch, squares);
        advance_entry(NoBase(), scratch.values(), width, held);
      } else {
        write_change(from, held, index, width, format, draw, out, scratch, squares);
        advance_entry(held, scratch.values(), width, held);
      }
    } else {
      if (fresh) {
        write_change(from, NoBase(), index, width, format, draw, out, scratch, squares);
      } else {
        read_eight_bits(entry, width, scratch.base());
        write_change(from, scratch.base(), index, width, format, draw, out, scratch, squares);
      }
      const bool refused = refused_groups(out, groups_of(format, width)) != 0;
      advance_eight_bits(scratch, width, fresh, refused, entry);
    }
    if (sums != nullptr) {
      take_error(from, scratch.values(), width, squares);
      add_squares(squares, refused_groups(out, groups_of(format, width)), *sums);
    }
    from += width;
    entry += entry_bytes(kind, 1, width);
    out += token_bytes(format, width);
  }
}

void change_row(const Values& values, const GroupFormat& format, const Draw& draw, CacheFormat kind,
                bool fresh, std::uint8_t* entry, std::uint8_t* out, SquareSums* sums) {
  const void* const data = values.data;
  switch (values.element) {
    case Element::float32:
      return change_elements(static_cast<const float*>(data), values, format, draw, kind, fresh,
                             entry, out, sums);
    case Element::bfloat16:
      return change_elements(static_cast<const Bfloat16*>(data), values, format, draw, kind, fresh,
                             entry, out, sums);
    case Element::float16:
      return change_elements(static_cast<const Float16*>(data), values, format, draw, kind, fresh,
                             entry, out, sums);
  }
}

}  // namespace strait::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strait::kernels {

HWY_EXPORT(change_row);

void cpu::quantize_change(const Values& values, const GroupFormat& format, const Draw& draw,
                          CacheFormat kind, bool fresh, std::byte* entry, std::byte* out,
                          SquareSums* sums) {
  HWY_DYNAMIC_DISPATCH(change_row)
  (values, format, draw, kind, fresh, reinterpret_cast<std::uint8_t*>(entry),
   reinterpret_cast<std::uint8_t*>(out), sums);
}

}  // namespace strait::kernels
#endif

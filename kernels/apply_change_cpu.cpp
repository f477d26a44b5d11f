#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/apply_change_cpu.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include "kernels/entries-inl.h"
#include "kernels/processors.h"

HWY_BEFORE_NAMESPACE();
namespace strait::kernels::HWY_NAMESPACE {

template <class T>
void apply_elements(const std::uint8_t* in, const GroupFormat& format, CacheFormat kind, bool fresh,
                    std::uint8_t* entry, const MutableValues& shape, T* out) {
  const std::int64_t width = shape.width;
  TokenScratch& scratch = TokenScratch::of_thread(width);
  for (std::int64_t token = 0; token < shape.tokens; ++token) {
    read_token(in, width, format, scratch.values());
    if (kind == CacheFormat::bfloat16) {
      auto* const held = reinterpret_cast<Bfloat16*>(entry);
      if (fresh) {
        advance_entry(NoBase(), scratch.values(), width, held);
      } else {
        advance_entry(held, scratch.values(), width, held);
      }
    } else {
      if (!fresh) read_eight_bits(entry, width, scratch.base());
      const bool refused = refused_groups(in, groups_of(format, width)) != 0;
      advance_eight_bits(scratch, width, fresh, refused, entry);
    }
    write_values(scratch.values(), width, out);
    write_refusals(in, format, width, out);
    in += token_bytes(format, width);
    entry += entry_bytes(kind, 1, width);
    out += width;
  }
}

void apply_row(const std::uint8_t* in, const GroupFormat& format, CacheFormat kind, bool fresh,
               std::uint8_t* entry, const MutableValues& out) {
  switch (out.element) {
    case Element::float32:
      return apply_elements(in, format, kind, fresh, entry, out, static_cast<float*>(out.data));
    case Element::bfloat16:
      return apply_elements(in, format, kind, fresh, entry, out, static_cast<Bfloat16*>(out.data));
    case Element::float16:
      return apply_elements(in, format, kind, fresh, entry, out, static_cast<Float16*>(out.data));
  }
}

}  // namespace strait::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strait::kernels {

HWY_EXPORT(apply_row);

void cpu::apply_change(const std::byte* in, const GroupFormat& format, CacheFormat kind, bool fresh,
                       std::byte* entry, const MutableValues& out) {
  HWY_DYNAMIC_DISPATCH(apply_row)
  (reinterpret_cast<const std::uint8_t*>(in), format, kind, fresh,
   reinterpret_cast<std::uint8_t*>(entry), out);
}

}  // namespace strait::kernels
#endif

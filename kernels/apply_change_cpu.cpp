#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/apply_change_cpu.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include "kernels/processors.h"
#include "kernels/token_scratch.h"
#include "kernels/tokens-inl.h"

HWY_BEFORE_NAMESPACE();
namespace strait::kernels::HWY_NAMESPACE {

template <class T>
void apply_elements(const std::uint8_t* in, const GroupFormat& format, bool fresh, Bfloat16* entry,
                    const MutableValues& shape, T* out) {
  const std::int64_t width = shape.width;
  TokenScratch& scratch = TokenScratch::of_thread(width);
  for (std::int64_t token = 0; token < shape.tokens; ++token) {
    read_token(in, width, format, scratch.values());
    if (fresh) {
      advance_entry(NoBase(), scratch.values(), width, entry);
    } else {
      advance_entry(entry, scratch.values(), width, entry);
    }
    write_values(scratch.values(), width, out);
    write_refusals(in, format, width, out);
    in += token_bytes(format, width);
    entry += width;
    out += width;
  }
}

void apply_row(const std::uint8_t* in, const GroupFormat& format, bool fresh, Bfloat16* entry,
               const MutableValues& out) {
  switch (out.element) {
    case Element::float32:
      return apply_elements(in, format, fresh, entry, out, static_cast<float*>(out.data));
    case Element::bfloat16:
      return apply_elements(in, format, fresh, entry, out, static_cast<Bfloat16*>(out.data));
    case Element::float16:
      return apply_elements(in, format, fresh, entry, out, static_cast<Float16*>(out.data));
  }
}

}  // namespace strait::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strait::kernels {

HWY_EXPORT(apply_row);

void cpu::apply_change(const std::byte* in, const GroupFormat& format, bool fresh, std::byte* entry,
                       const MutableValues& out) {
  HWY_DYNAMIC_DISPATCH(apply_row)
  (reinterpret_cast<const std::uint8_t*>(in), format, fresh, reinterpret_cast<Bfloat16*>(entry),
   out);
}

}  // namespace strait::kernels
#endif

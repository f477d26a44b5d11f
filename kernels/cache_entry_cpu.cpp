#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cache_entry_cpu.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include "kernels/processors.h"
#include "kernels/token_scratch.h"
#include "kernels/tokens-inl.h"

HWY_BEFORE_NAMESPACE();
namespace strait::kernels::HWY_NAMESPACE {

template <class T>
void store_elements(const T* from, const Values& shape, Bfloat16* entry) {
  const std::int64_t width = shape.width;
  TokenScratch& scratch = TokenScratch::of_thread(width);
  for (std::int64_t token = 0; token < shape.tokens; ++token) {
    for (std::int64_t i = 0; i < width; i += lane_count()) {
      const auto value = load_upto(from + i, width - i);
      const auto fine = hn::Lt(hn::Abs(value), hn::Set(Lanes(), kHuge));
      hn::Store(hn::IfThenElseZero(fine, value), Lanes(), scratch.values() + i);
    }
    write_values(scratch.values(), width, entry);
    from += width;
    entry += width;
  }
}

template <class T>
void load_elements(const Bfloat16* entry, const MutableValues& shape, T* out) {
  const std::int64_t count = shape.tokens * shape.width;
  for (std::int64_t i = 0; i < count; i += lane_count()) {
    store_upto(load_upto(entry + i, count - i), out + i, count - i);
  }
}

void store_row(const Values& values, Bfloat16* entry) {
  switch (values.element) {
    case Element::float32:
      return store_elements(static_cast<const float*>(values.data), values, entry);
    case Element::bfloat16:
      return store_elements(static_cast<const Bfloat16*>(values.data), values, entry);
    case Element::float16:
      return store_elements(static_cast<const Float16*>(values.data), values, entry);
  }
}

void load_row(const Bfloat16* entry, const MutableValues& out) {
  switch (out.element) {
    case Element::float32:
      return load_elements(entry, out, static_cast<float*>(out.data));
    case Element::bfloat16:
      return load_elements(entry, out, static_cast<Bfloat16*>(out.data));
    case Element::float16:
      return load_elements(entry, out, static_cast<Float16*>(out.data));
  }
}

}  // namespace strait::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strait::kernels {

HWY_EXPORT(store_row);
HWY_EXPORT(load_row);

void cpu::store_entry(const Values& values, std::byte* entry) {
  HWY_DYNAMIC_DISPATCH(store_row)(values, reinterpret_cast<Bfloat16*>(entry));
}

void cpu::load_entry(const std::byte* entry, const MutableValues& out) {
  HWY_DYNAMIC_DISPATCH(load_row)(reinterpret_cast<const Bfloat16*>(entry), out);
}

}  // namespace strait::kernels
#endif

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cache_entry_cpu.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include "kernels/entries-inl.h"
#include "kernels/processors.h"

HWY_BEFORE_NAMESPACE();
namespace strait::kernels::HWY_NAMESPACE {

template <class T>
void store_elements(const T* from, const Values& shape, CacheFormat kind, std::uint8_t* entry) {
  const std::int64_t width = shape.width;
  TokenScratch& scratch = TokenScratch::of_thread(width);
  for (std::int64_t token = 0; token < shape.tokens; ++token) {
    for (std::int64_t i = 0; i < width; i += lane_count()) {
      const auto value = load_upto(from + i, width - i);
      const auto fine = hn::Lt(hn::Abs(value), hn::Set(Lanes(), kHuge));
      hn::Store(hn::IfThenElseZero(fine, value), Lanes(), scratch.values() + i);
    }
    if (kind == CacheFormat::bfloat16) {
      write_values(scratch.values(), width, reinterpret_cast<Bfloat16*>(entry));
    } else {
      write_eight_bits(scratch, width, entry);
    }
    from += width;
    entry += entry_bytes(kind, 1, width);
  }
}

template <class T>
void load_elements(CacheFormat kind, const std::uint8_t* entry, const MutableValues& shape,
                   T* out) {
  const std::int64_t width = shape.width;
  TokenScratch& scratch = TokenScratch::of_thread(width);
  for (std::int64_t token = 0; token < shape.tokens; ++token) {
    if (kind == CacheFormat::bfloat16) {
      const auto* const held = reinterpret_cast<const Bfloat16*>(entry);
      for (std::int64_t i = 0; i < width; i += lane_count()) {
        store_upto(load_upto(held + i, width - i), out + i, width - i);
      }
    } else {
      read_eight_bits(entry, width, scratch.values());
      write_values(scratch.values(), width, out);
      write_refusals(entry, kEntryFormat, width, out);
    }
    entry += entry_bytes(kind, 1, width);
    out += width;
  }
}

void store_row(const Values& values, CacheFormat kind, std::uint8_t* entry) {
  switch (values.element) {
    case Element::float32:
      return store_elements(static_cast<const float*>(values.data), values, kind, entry);
    case Element::bfloat16:
      return store_elements(static_cast<const Bfloat16*>(values.data), values, kind, entry);
    case Element::float16:
      return store_elements(static_cast<const Float16*>(values.data), values, kind, entry);
  }
}

void load_row(CacheFormat kind, const std::uint8_t* entry, const MutableValues& out) {
  switch (out.element) {
    case Element::float32:
      return load_elements(kind, entry, out, static_cast<float*>(out.data));
    case Element::bfloat16:
      return load_elements(kind, entry, out, static_cast<Bfloat16*>(out.data));
    case Element::float16:
      return load_elements(kind, entry, out, static_cast<Float16*>(out.data));
  }
}

}  // namespace strait::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strait::kernels {

HWY_EXPORT(store_row);
HWY_EXPORT(load_row);

void cpu::store_entry(const Values& values, CacheFormat kind, std::byte* entry) {
  HWY_DYNAMIC_DISPATCH(store_row)(values, kind, reinterpret_cast<std::uint8_t*>(entry));
}

void cpu::load_entry(CacheFormat kind, const std::byte* entry, const MutableValues& out) {
  HWY_DYNAMIC_DISPATCH(load_row)(kind, reinterpret_cast<const std::uint8_t*>(entry), out);
}

}  // namespace strait::kernels
#endif

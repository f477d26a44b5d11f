#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/nf4_cpu.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include <bit>
#include <type_traits>

#include "kernels/groups-inl.h"
#include "kernels/nf4.h"

HWY_BEFORE_NAMESPACE();
namespace strait::kernels::HWY_NAMESPACE {

constexpr std::uint8_t kNf4ZeroLevel = 7;
constexpr int kNf4Values = kNf4Block;

constexpr float nf4_middle(std::size_t lower) {
  return static_cast<float>((double{kNf4Levels[lower]} + double{kNf4Levels[lower + 1]}) / 2);
}

// The index of a value's level is the number of midpoints between levels that it exceeds.
HWY_INLINE void choose_levels(const float* values, float size, std::uint8_t* levels) {
  const Lanes lanes;
  // A block of zeros has no scale to divide by.
  if (size == 0) return void(std::fill(levels, levels + kNf4Values, kNf4ZeroLevel));
  for (int i = 0; i < kNf4Values; i += static_cast<int>(lane_count())) {
    const auto share = hn::Div(hn::Load(lanes, values + i), hn::Set(lanes, size));
    auto level = hn::Zero(lanes);
    for (std::size_t k = 0; k + 1 < kNf4Levels.size(); ++k) {
      const auto above = hn::Gt(share, hn::Set(lanes, nf4_middle(k)));
      level = hn::Add(level, hn::IfThenElseZero(above, hn::Set(lanes, 1.0F)));
    }
    hn::StoreU(hn::DemoteTo(ByteLanes(), hn::ConvertTo(CountLanes(), level)), ByteLanes(),
               levels + i);
  }
}

template <class T>
bool quantize_nf4_elements(const T* from, std::int64_t count, std::uint8_t* out, float* sizes) {
  HWY_ALIGN float values[kNf4Values];
  HWY_ALIGN std::uint8_t levels[kNf4Values];
  for (; count > 0; count -= kNf4Block) {
    const std::int64_t held = std::min(count, kNf4Block);
    for (std::int64_t i = 0; i < kNf4Block; i += lane_count()) {
      const std::int64_t left = held - i;
      const Vector some = left > 0 ? load_upto(from + i, left) : hn::Zero(Lanes());
      hn::Store(some, Lanes(), values + i);
    }
    const std::uint32_t bits = largest_bits(values, kNf4Values);
    // NaN, infinity, and 2^120 or more: the caller names the tensor.
    if (bits >= kHugeBits) return false;
    *sizes = float_of_bits(bits);
    choose_levels(values, *sizes++, levels);
    for (std::int64_t i = 0; i < held; i += 2) {
      *out++ = static_cast<std::uint8_t>(levels[i] << 4U | levels[i + 1]);
    }
    from += held;
  }
  return true;
}

#if HWY_TARGET == HWY_SCALAR
HWY_INLINE void expand_nf4(const std::uint8_t* levels, float size, float* values) {
  for (int i = 0; i < kNf4Values; i += 2) {
    const unsigned both = *levels++;
    values[i] = kNf4Levels[both >> 4U] * size;
    values[i + 1] = kNf4Levels[both & 15U] * size;
  }
}
#else
using Nf4Bytes = hn::FixedTag<std::uint8_t, 16>;
using Nf4Pairs = hn::FixedTag<std::uint16_t, 8>;
using Nf4Floats = hn::FixedTag<float, 4>;

// Byte `place` of every level.
constexpr std::array<std::uint8_t, 16> nf4_bytes(unsigned place) {
  std::array<std::uint8_t, 16> bytes{};
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<std::uint8_t>(std::bit_cast<std::uint32_t>(kNf4Levels[i]) >> 8 * place);
  }
  return bytes;
}
HWY_ALIGN constexpr std::array<std::uint8_t, 16> kNf4Bytes[4] = {nf4_bytes(0), nf4_bytes(1),
                                                                 nf4_bytes(2), nf4_bytes(3)};

// A float's four bytes are looked up one by one, since vector tables hold bytes.
// Sixteen levels to floats, by a table of sixteen entries for each byte of a float.
HWY_INLINE void look_up_nf4(hn::Vec<Nf4Bytes> levels, hn::Vec<Nf4Floats> size, float* values) {
  const Nf4Bytes bytes;
  const Nf4Pairs pairs;
  const Nf4Floats floats;
  const auto of_place = [&](int place) {
    return hn::TableLookupBytes(hn::Load(bytes, kNf4Bytes[place].data()), levels);
  };
  const auto first = of_place(0);
  const auto second = of_place(1);
  const auto third = of_place(2);
  const auto fourth = of_place(3);
  const auto store = [&](auto low, auto high, float* to) {
    const auto lower = hn::BitCast(pairs, low);
    const auto upper = hn::BitCast(pairs, high);
    const auto four = hn::BitCast(floats, hn::InterleaveLower(pairs, lower, upper));
    const auto more = hn::BitCast(floats, hn::InterleaveUpper(pairs, lower, upper));
    hn::StoreU(hn::Mul(four, size), floats, to);
    hn::StoreU(hn::Mul(more, size), floats, to + 4);
  };
  store(hn::InterleaveLower(bytes, first, second), hn::InterleaveLower(bytes, third, fourth),
        values);
  store(hn::InterleaveUpper(bytes, first, second), hn::InterleaveUpper(bytes, third, fourth),
        values + 8);
}

HWY_INLINE void expand_nf4(const std::uint8_t* levels, float size, float* values) {
  const Nf4Bytes bytes;
  const auto factor = hn::Set(Nf4Floats(), size);
  for (int i = 0; i < kNf4Values; i += 32) {
    const auto both = hn::LoadU(bytes, levels + i / 2);
    const auto even = hn::ShiftRight<4>(both);
    const auto odd = hn::And(both, hn::Set(bytes, 15));
    look_up_nf4(hn::InterleaveLower(bytes, even, odd), factor, values + i);
    look_up_nf4(hn::InterleaveUpper(bytes, even, odd), factor, values + i + 16);
  }
}
#endif

template <class T>
void dequantize_nf4_elements(const std::uint8_t* levels, const float* sizes, std::int64_t count,
                             T* to) {
  for (; count >= kNf4Block; count -= kNf4Block) {
    if constexpr (std::is_same_v<T, float>) {
      expand_nf4(levels, *sizes++, to);
    } else {
      HWY_ALIGN float values[kNf4Values];
      expand_nf4(levels, *sizes++, values);
      for (std::int64_t i = 0; i < kNf4Block; i += lane_count()) {
        store_lanes(hn::Load(Lanes(), values + i), to + i);
      }
    }
    levels += kNf4Block / 2;
    to += kNf4Block;
  }
  if (count == 0) return;
  // A part of a block is expanded from a copy, because the table reads whole vectors.
  std::uint8_t last[kNf4Block / 2] = {};
  std::memcpy(last, levels, static_cast<std::size_t>(count + 1) / 2);
  HWY_ALIGN float values[kNf4Values];
  expand_nf4(last, *sizes, values);
  for (std::int64_t i = 0; i < count; i += lane_count()) {
    store_upto(hn::Load(Lanes(), values + i), to + i, count - i);
  }
}

bool quantize_nf4_values(const void* from, Element element, std::int64_t count,
                         std::uint8_t* levels, float* sizes) {
  switch (element) {
    case Element::float32:
      return quantize_nf4_elements(static_cast<const float*>(from), count, levels, sizes);
    case Element::bfloat16:
      return quantize_nf4_elements(static_cast<const Bfloat16*>(from), count, levels, sizes);
    case Element::float16:
      return quantize_nf4_elements(static_cast<const Float16*>(from), count, levels, sizes);
  }
  return false;
}

void dequantize_nf4_values(const std::uint8_t* levels, const float* sizes, std::int64_t count,
                           void* to, Element element) {
  switch (element) {
    case Element::float32:
      return dequantize_nf4_elements(levels, sizes, count, static_cast<float*>(to));
    case Element::bfloat16:
      return dequantize_nf4_elements(levels, sizes, count, static_cast<Bfloat16*>(to));
    case Element::float16:
      return dequantize_nf4_elements(levels, sizes, count, static_cast<Float16*>(to));
  }
}

}  // namespace strait::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strait::kernels {

HWY_EXPORT(quantize_nf4_values);
HWY_EXPORT(dequantize_nf4_values);

bool quantize_nf4(const void* values, Element element, std::int64_t count, std::uint8_t* levels,
                  float* sizes) {
  return HWY_DYNAMIC_DISPATCH(quantize_nf4_values)(values, element, count, levels, sizes);
}

void dequantize_nf4(const std::uint8_t* levels, const float* sizes, std::int64_t count,
                    void* values, Element element) {
  HWY_DYNAMIC_DISPATCH(dequantize_nf4_values)(levels, sizes, count, values, element);
}

}  // namespace strait::kernels
#endif

// Levels, one per byte, to planes of one bit per value and back. Included once per instruction set,
// like lanes-inl.h.
#if defined(STRAIT_KERNELS_PLANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STRAIT_KERNELS_PLANES_INL_H_
#undef STRAIT_KERNELS_PLANES_INL_H_
#else
#define STRAIT_KERNELS_PLANES_INL_H_
#endif

#include "kernels/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace strait::kernels::HWY_NAMESPACE {

#if HWY_TARGET == HWY_SCALAR
template <int kBits>
HWY_INLINE void pack_planes(const std::uint8_t* levels, int group, std::uint8_t* planes) {
  for (int bit = 0; bit < kBits; ++bit) {
    for (int i = 0; i < group; i += 8) {
      unsigned plane = 0;
      for (int k = 0; k < 8; ++k) plane |= ((levels[i + k] >> bit) & 1U) << k;
      *planes++ = static_cast<std::uint8_t>(plane);
    }
  }
}

template <int kBits>
HWY_INLINE void unpack_planes(const std::uint8_t* planes, int group, std::uint8_t* levels) {
  std::fill(levels, levels + group, std::uint8_t{0});
  for (int bit = 0; bit < kBits; ++bit) {
    for (int i = 0; i < group; ++i) {
      const unsigned value = (planes[(bit * group + i) / 8] >> (i % 8)) & 1U;
      levels[i] = static_cast<std::uint8_t>(levels[i] | value << bit);
    }
  }
}
#else
using LevelLanes = hn::CappedTag<std::uint8_t, 32>;
constexpr std::size_t kMaskRoom = 8;  // StoreMaskBits needs 8 writable bytes for any mask

template <int kBits>
HWY_INLINE void pack_planes(const std::uint8_t* levels, int group, std::uint8_t* planes) {
  const LevelLanes lanes;
  const auto step = static_cast<int>(hn::Lanes(lanes));
  for (int i = 0; i < group; i += step) {
    const auto level = hn::Load(lanes, levels + i);
    auto flag = hn::Set(lanes, 1);
    for (int bit = 0; bit < kBits; ++bit) {
      std::uint8_t mask[kMaskRoom];
      hn::StoreMaskBits(lanes, hn::TestBit(level, flag), mask);
      std::memcpy(planes + std::ptrdiff_t{group / 8} * bit + i / 8, mask, hn::Lanes(lanes) / 8);
      flag = hn::Add(flag, flag);
    }
  }
}

template <int kBits>
HWY_INLINE void unpack_planes(const std::uint8_t* planes, int group, std::uint8_t* levels) {
  const LevelLanes lanes;
  const auto step = static_cast<int>(hn::Lanes(lanes));
  for (int i = 0; i < group; i += step) {
    auto level = hn::Zero(lanes);
    auto flag = hn::Set(lanes, 1);
    for (int bit = 0; bit < kBits; ++bit) {
      std::uint8_t mask[kMaskRoom] = {};
      std::memcpy(mask, planes + std::ptrdiff_t{group / 8} * bit + i / 8, hn::Lanes(lanes) / 8);
      level = hn::Or(level, hn::IfThenElseZero(hn::LoadMaskBits(lanes, mask), flag));
      flag = hn::Add(flag, flag);
    }
    hn::Store(level, lanes, levels + i);
  }
}
#endif

// A short last group also has shorter planes. `levels` has room for a whole group.
template <int kBits>
HWY_INLINE void pack_tail(std::uint8_t* levels, int count, int group, std::uint8_t* planes) {
  std::fill(levels + count, levels + group, std::uint8_t{0});
  HWY_ALIGN std::uint8_t whole[8 * 128 / 8];
  pack_planes<kBits>(levels, group, whole);
  const std::ptrdiff_t bytes = (count + 7) / 8;
  const std::ptrdiff_t plane = group / 8;
  for (int bit = 0; bit < kBits; ++bit) {
    std::memcpy(planes + bit * bytes, whole + bit * plane, static_cast<std::size_t>(bytes));
  }
}

template <int kBits>
HWY_INLINE void unpack_tail(const std::uint8_t* planes, int count, int group,
                            std::uint8_t* levels) {
  HWY_ALIGN std::uint8_t whole[8 * 128 / 8] = {};
  const std::ptrdiff_t bytes = (count + 7) / 8;
  const std::ptrdiff_t plane = group / 8;
  for (int bit = 0; bit < kBits; ++bit) {
    std::memcpy(whole + bit * plane, planes + bit * bytes, static_cast<std::size_t>(bytes));
  }
  unpack_planes<kBits>(whole, group, levels);
}

}  // namespace strait::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif

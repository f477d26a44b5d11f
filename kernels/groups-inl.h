// Operations on one group: its size, rotation, levels and bit planes. A group here is whole: 32, 64
// or 128 aligned floats. Included once per instruction set, like lanes-inl.h.
#if defined(STRAIT_KERNELS_GROUPS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STRAIT_KERNELS_GROUPS_INL_H_
#undef STRAIT_KERNELS_GROUPS_INL_H_
#else
#define STRAIT_KERNELS_GROUPS_INL_H_
#endif

#include "kernels/group_rules.h"
#include "kernels/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace strait::kernels::HWY_NAMESPACE {

constexpr int kWidestGroup = 128;

// The bits of the largest size as integers, so that NaN is the largest.
HWY_INLINE std::uint32_t largest_bits(const float* values, int group) {
  const CountLanes counts;
  const auto mask = hn::Set(counts, static_cast<std::int32_t>(kSizeBits));
  auto largest = hn::Zero(counts);
  for (int i = 0; i < group; i += static_cast<int>(lane_count())) {
    const auto bits = hn::BitCast(counts, hn::Load(Lanes(), values + i));
    largest = hn::Max(largest, hn::And(bits, mask));
  }
  return static_cast<std::uint32_t>(hn::GetLane(hn::MaxOfLanes(counts, largest)));
}

// Sums and differences of values `stride` apart, for strides of at least a vector.
template <class D>
HWY_INLINE void far_butterflies(D lanes, float* values, int group, int stride) {
  for (int block = 0; block < group; block += 2 * stride) {
    for (int i = block; i < block + stride; i += static_cast<int>(hn::Lanes(lanes))) {
      const auto left = hn::LoadU(lanes, values + i);
      const auto right = hn::LoadU(lanes, values + i + stride);
      hn::StoreU(hn::Add(left, right), lanes, values + i);
      hn::StoreU(hn::Sub(left, right), lanes, values + i + stride);
    }
  }
}

#if HWY_TARGET == HWY_SCALAR
HWY_INLINE void near_butterflies(float* values, int group) {
  for (int stride = 1; stride < 16; stride *= 2) far_butterflies(Lanes(), values, group, stride);
}
#else
// Strides 1 to 8. A difference is the sum with the negated value, with the same bits.
HWY_INLINE void near_butterflies(float* values, int group) {
  HWY_ALIGN static constexpr float kOdd[4] = {0.0F, -0.0F, 0.0F, -0.0F};
  HWY_ALIGN static constexpr float kUpper[4] = {0.0F, 0.0F, -0.0F, -0.0F};
  const auto odd = hn::LoadDup128(Lanes(), kOdd);
  const auto upper = hn::LoadDup128(Lanes(), kUpper);
#if HWY_TARGET == HWY_AVX3
  HWY_ALIGN static constexpr float kOddBlocks[16] = {0, 0, 0, 0, -0.0F, -0.0F, -0.0F, -0.0F,
                                                     0, 0, 0, 0, -0.0F, -0.0F, -0.0F, -0.0F};
  HWY_ALIGN static constexpr float kUpperBlocks[16] = {
      0, 0, 0, 0, 0, 0, 0, 0, -0.0F, -0.0F, -0.0F, -0.0F, -0.0F, -0.0F, -0.0F, -0.0F};
  const auto odd_blocks = hn::Load(Lanes(), kOddBlocks);
  const auto upper_blocks = hn::Load(Lanes(), kUpperBlocks);
#endif
  for (int i = 0; i < group; i += static_cast<int>(lane_count())) {
    auto lanes = hn::Load(Lanes(), values + i);
    lanes = hn::Add(hn::Shuffle2301(lanes), hn::Xor(lanes, odd));
    lanes = hn::Add(hn::Shuffle1032(lanes), hn::Xor(lanes, upper));
#if HWY_TARGET == HWY_AVX3
    lanes = hn::Add(hn::SwapAdjacentBlocks(lanes), hn::Xor(lanes, odd_blocks));
    const auto halves = hn::ConcatLowerUpper(Lanes(), lanes, lanes);
    lanes = hn::Add(halves, hn::Xor(lanes, upper_blocks));
#endif
    hn::Store(lanes, Lanes(), values + i);
  }
#if HWY_TARGET != HWY_AVX3
  far_butterflies(hn::CappedTag<float, 4>(), values, group, 4);
  far_butterflies(hn::CappedTag<float, 8>(), values, group, 8);
#endif
}
#endif

// Fast Hadamard transform with strides 1, 2, 4, …, then times `factor`.
HWY_INLINE void turn(float* values, int group, float factor) {
  near_butterflies(values, group);
  for (int stride = 16; stride < group; stride *= 2) {
    far_butterflies(Lanes(), values, group, stride);
  }
  const auto factors = hn::Set(Lanes(), factor);
  for (int i = 0; i < group; i += static_cast<int>(lane_count())) {
    hn::Store(hn::Mul(hn::Load(Lanes(), values + i), factors), Lanes(), values + i);
  }
}

// `steps`: the lanes' numbers times kDrawStep.
HWY_INLINE hn::Vec<BitLanes> hash_lanes(std::uint64_t words, std::uint32_t index,
                                        hn::Vec<BitLanes> steps) {
  const BitLanes bits;
  const std::uint32_t first = index * kDrawStep + static_cast<std::uint32_t>(words);
  auto hash = hn::Add(steps, hn::Set(bits, first));
  hash = hn::Mul(hn::Xor(hash, hn::ShiftRight<15>(hash)), hn::Set(bits, kDrawMix1));
  hash = hn::Add(hn::Xor(hash, hn::ShiftRight<12>(hash)),
                 hn::Set(bits, static_cast<std::uint32_t>(words >> 32U)));
  hash = hn::Mul(hash, hn::Set(bits, kDrawMix2));
  return hn::Xor(hash, hn::ShiftRight<15>(hash));
}

// Values to levels, and each value to what its level decodes to.
template <int kBits>
HWY_INLINE void round_group(float* values, int group, float scale, std::uint8_t* levels) {
  const Lanes lanes;
  constexpr auto highest = static_cast<float>(levels_of(kBits) - 1);
  constexpr auto middle = static_cast<float>(levels_of(kBits - 1));
  const auto inverse = hn::Set(lanes, inverse_of(scale));
  for (int i = 0; i < group; i += static_cast<int>(lane_count())) {
    auto level = hn::Add(hn::Mul(hn::Load(lanes, values + i), inverse), hn::Set(lanes, middle));
    level = hn::Floor(hn::Min(hn::Max(level, hn::Zero(lanes)), hn::Set(lanes, highest)));
    // Small whole numbers are in the last bits of themselves plus 2^23.
    const auto whole = hn::BitCast(BitLanes(), hn::Add(level, hn::Set(lanes, 0x1p23F)));
    hn::StoreU(hn::TruncateTo(ByteLanes(), whole), ByteLanes(), levels + i);
    const auto odd = hn::Sub(hn::Add(level, level), hn::Set(lanes, highest));
    hn::Store(hn::Mul(odd, hn::Set(lanes, scale)), lanes, values + i);
  }
}

template <int kBits>
HWY_INLINE void expand_levels(const std::uint8_t* levels, int group, float scale, float* values) {
  const Lanes lanes;
  constexpr auto highest = static_cast<float>(levels_of(kBits) - 1);
  for (int i = 0; i < group; i += static_cast<int>(lane_count())) {
    const auto whole = hn::PromoteTo(CountLanes(), hn::LoadU(ByteLanes(), levels + i));
    const auto odd = hn::Sub(hn::ConvertTo(lanes, hn::Add(whole, whole)), hn::Set(lanes, highest));
    hn::Store(hn::Mul(odd, hn::Set(lanes, scale)), lanes, values + i);
  }
}

}  // namespace strait::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif

// The second scale of a group, after that of its largest value: one that fits its mean square, or,
// for levels of unbiased rounding, one that restores its length. Included once per instruction set,
// like lanes-inl.h.
#if defined(STRAIT_KERNELS_LENGTHS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STRAIT_KERNELS_LENGTHS_INL_H_
#undef STRAIT_KERNELS_LENGTHS_INL_H_
#else
#define STRAIT_KERNELS_LENGTHS_INL_H_
#endif

#include "kernels/group_rules.h"
#include "kernels/groups-inl.h"
#include "kernels/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace strait::kernels::HWY_NAMESPACE {

// A sum over a group has one order on every processor: each column from first to last value, then
// halves of the columns.
HWY_INLINE float total_of(float* columns) {
  for (int half = kColumns / 2; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) columns[i] += columns[i + half];
  }
  return columns[0];
}

// The sum of the squares of values times `factor`.
HWY_INLINE float squares_of(const float* values, int group, float factor) {
  const Lanes lanes;
  const auto factors = hn::Set(lanes, factor);
  HWY_ALIGN float squares[kColumns];
  for (int column = 0; column < kColumns; column += static_cast<int>(lane_count())) {
    auto square = hn::Zero(lanes);
    for (int i = column; i < group; i += kColumns) {
      const auto steps = hn::Mul(hn::Load(lanes, values + i), factors);
      square = hn::Add(square, hn::Mul(steps, steps));
    }
    hn::Store(square, lanes, squares + column);
  }
  return total_of(squares);
}

// Values to levels, and the scale code that restores their length. The values do not change.
// `index`: of the first one in its row.
template <int kBits>
HWY_NOINLINE std::uint16_t level_group(const float* values, int group, std::uint16_t scale_code,
                                       std::uint64_t words, std::uint32_t index,
                                       std::uint8_t* levels) {
  const Lanes lanes;
  constexpr auto highest = static_cast<float>(levels_of(kBits) - 1);
  constexpr auto middle = static_cast<float>(levels_of(kBits - 1));
  const auto inverse = hn::Set(lanes, inverse_of(scale_of_code(scale_code)));
  [[maybe_unused]] const auto numbers =
      hn::Mul(hn::Iota(BitLanes(), 0), hn::Set(BitLanes(), kDrawStep));
  HWY_ALIGN float squares[kColumns];
  HWY_ALIGN float products[kColumns];
  for (int column = 0; column < kColumns; column += static_cast<int>(lane_count())) {
    auto square = hn::Zero(lanes);
    auto product = hn::Zero(lanes);
    auto hash = hn::Zero(BitLanes());
    for (int i = column; i < group; i += kColumns) {
      const auto steps = hn::Mul(hn::Load(lanes, values + i), inverse);
      auto level = hn::Add(steps, hn::Set(lanes, middle));
      if constexpr (draws_small_values(kBits)) {
        hash = i % kHashedValues < kColumns
                   ? hash_lanes(words, index + static_cast<std::uint32_t>(i), numbers)
                   : hn::RotateRight<8>(hash);
        const auto drawn = hn::ConvertTo(lanes, hn::BitCast(CountLanes(), hash));
        const auto small = hn::Lt(hn::Abs(steps), hn::Set(lanes, 0.5F));
        // The product is exact, so it is the same whether the sum is fused or not.
        const auto moved = hn::MulAdd(drawn, hn::Set(lanes, kSignedDrawUnit), level);
        level = hn::IfThenElse(small, moved, level);
      }
      level = hn::Floor(hn::Min(hn::Max(level, hn::Zero(lanes)), hn::Set(lanes, highest)));
      const auto whole = hn::BitCast(BitLanes(), hn::Add(level, hn::Set(lanes, 0x1p23F)));
      hn::StoreU(hn::TruncateTo(ByteLanes(), whole), ByteLanes(), levels + i);
      const auto odd = hn::Sub(hn::Add(level, level), hn::Set(lanes, highest));
      square = hn::Add(square, hn::Mul(steps, steps));
      product = hn::Add(product, hn::Mul(odd, steps));
    }
    hn::Store(square, lanes, squares + column);
    hn::Store(product, lanes, products + column);
  }
  return restored_code(scale_code, total_of(squares), total_of(products), draw_of(words, index));
}

}  // namespace strait::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif

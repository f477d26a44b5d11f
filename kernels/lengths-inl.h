// Unbiased rounding of one group: its levels, and the scale that restores the group's length. Read
// once per instruction set, as lanes-inl.h.
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

// A sum over a group has one order on every processor: 16 columns, each summed from its first value
// to its last, then halves of the columns.
struct ColumnSums {
  static constexpr int kColumns = 16;
  HWY_ALIGN float columns[kColumns] = {};

  HWY_INLINE void add(int at, Vector values) {
    float* const to = columns + at % kColumns;
    hn::Store(hn::Add(hn::Load(Lanes(), to), values), Lanes(), to);
  }
  HWY_INLINE float total() {
    for (int half = kColumns / 2; half > 0; half /= 2) {
      for (int i = 0; i < half; ++i) columns[i] += columns[i + half];
    }
    return columns[0];
  }
};

// Values to levels, and the scale code that restores their length. The values stay. `index`: of the
// first one in its row.
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
  ColumnSums squares;
  ColumnSums products;
  for (int i = 0; i < group; i += static_cast<int>(lane_count())) {
    const auto steps = hn::Mul(hn::Load(lanes, values + i), inverse);
    auto level = hn::Add(steps, hn::Set(lanes, middle));
    level = hn::Floor(hn::Min(hn::Max(level, hn::Zero(lanes)), hn::Set(lanes, highest)));
    if constexpr (draws_small_values(kBits)) {
      const auto drawn = drawn_lanes(words, index + static_cast<std::uint32_t>(i), numbers);
      const auto up = hn::Lt(drawn, hn::Add(steps, hn::Set(lanes, 0.5F)));
      const auto inner = hn::IfThenElse(up, hn::Set(lanes, middle), hn::Set(lanes, middle - 1));
      level = hn::IfThenElse(hn::Lt(hn::Abs(steps), hn::Set(lanes, 0.5F)), inner, level);
    }
    const auto whole = hn::BitCast(CountLanes(), hn::Add(level, hn::Set(lanes, 0x1p23F)));
    const auto byte = hn::And(whole, hn::Set(CountLanes(), 0xFF));
    hn::StoreU(hn::DemoteTo(ByteLanes(), byte), ByteLanes(), levels + i);
    const auto odd = hn::Sub(hn::Add(level, level), hn::Set(lanes, highest));
    squares.add(i, hn::Mul(steps, steps));
    products.add(i, hn::Mul(odd, steps));
  }
  return restored_code(scale_code, squares.total(), products.total(), draw_of(words, index));
}

}  // namespace strait::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif

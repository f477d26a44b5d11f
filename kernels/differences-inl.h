// The sender's side of a token: the change to be sent, and the error that will remain. Included
// once per instruction set, like lanes-inl.h.
#if defined(STRAIT_KERNELS_DIFFERENCES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STRAIT_KERNELS_DIFFERENCES_INL_H_
#undef STRAIT_KERNELS_DIFFERENCES_INL_H_
#else
#define STRAIT_KERNELS_DIFFERENCES_INL_H_
#endif

#include <cmath>
#include <limits>

#include "kernels/group_rules.h"
#include "kernels/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace strait::kernels::HWY_NAMESPACE {

// Of one token, in float32.
struct TokenSquares {
  float value = 0;
  float change = 0;
  float error = 0;
};

// A huge value is refused whatever its base.
template <class T, class Base>
HWY_INLINE void refuse_huge(const T* from, Base base, std::int64_t width, float* values) {
  const auto refused = hn::Set(Lanes(), std::numeric_limits<float>::quiet_NaN());
  for (std::int64_t i = 0; i < width; i += lane_count()) {
    const auto value = load_upto(from + i, width - i);
    const auto change = hn::Sub(value, load_upto(advanced(base, i), width - i));
    const auto fine = hn::Lt(hn::Abs(value), hn::Set(Lanes(), kHuge));
    hn::Store(hn::IfThenElse(fine, change, refused), Lanes(), values + i);
  }
}

// Two sums alternate, so that neither waits for the previous product.
HWY_INLINE void add_square(Vector value, Vector& sum, Vector& other) {
  const auto added = hn::MulAdd(value, value, sum);
  sum = other;
  other = added;
}

// The change since `base`, as floats in whole groups with zeros after the width.
template <class T, class Base>
HWY_INLINE void take_difference(const T* from, Base base, std::int64_t width, int group,
                                float* values, TokenSquares& squares) {
  auto value_squares = hn::Zero(Lanes());
  auto change_squares = hn::Zero(Lanes());
  auto other_value_squares = value_squares;
  auto other_change_squares = change_squares;
  auto largest = hn::Zero(CountLanes());
  const auto sizes = hn::Set(CountLanes(), static_cast<std::int32_t>(kSizeBits));
  for (std::int64_t i = 0; i < width; i += lane_count()) {
    const auto value = load_upto(from + i, width - i);
    const auto change = hn::Sub(value, load_upto(advanced(base, i), width - i));
    hn::Store(change, Lanes(), values + i);
    largest = hn::Max(largest, hn::And(hn::BitCast(CountLanes(), value), sizes));
    add_square(value, value_squares, other_value_squares);
    add_square(change, change_squares, other_change_squares);
  }
  const std::int64_t whole = (width + group - 1) / group * group;
  std::fill(values + width, values + whole, 0.0F);
  if (hn::GetLane(hn::MaxOfLanes(CountLanes(), largest)) >= static_cast<std::int32_t>(kHugeBits)) {
    refuse_huge(from, base, width, values);
    std::fill(values + width, values + whole, 0.0F);
  }
  squares.value = sum_of(hn::Add(value_squares, other_value_squares));
  squares.change = sum_of(hn::Add(change_squares, other_change_squares));
}

template <class T>
HWY_INLINE void take_error(const T* from, const float* known, std::int64_t width,
                           TokenSquares& squares) {
  auto squared = hn::Zero(Lanes());
  auto other = squared;
  for (std::int64_t i = 0; i < width; i += lane_count()) {
    const auto error = hn::Sub(load_upto(from + i, width - i), hn::Load(Lanes(), known + i));
    add_square(error, squared, other);
  }
  squares.error = sum_of(hn::Add(squared, other));
}

// A token with refused values, or whose squares exceed float32, is left out.
HWY_INLINE void add_squares(const TokenSquares& squares, std::int64_t refused_groups,
                            SquareSums& sums) {
  sums.refused_groups += refused_groups;
  if (refused_groups != 0 || !std::isfinite(squares.value + squares.change + squares.error)) return;
  sums.value += squares.value;
  sums.change += squares.change;
  sums.error += squares.error;
}

}  // namespace strait::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif

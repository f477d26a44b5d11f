#pragma once

#include <algorithm>
#include <cstdint>

namespace strait::sync {

// Smaller magnitudes count as zero, and kMostMagnitude and more are refused, so that no result of
// the arithmetic is subnormal or infinite.
inline constexpr float kLeastMagnitude = 0x1p-100F;
inline constexpr float kMostMagnitude = 0x1p100F;

// The magnitudes that a packet can represent: threshold + (level + offset) · step. Without a table,
// an epsilon or a scale to the largest value: levels are entropy coded, so the few large ones cost
// little in all. A step has six significant bits, so that its product with a level is exact: with
// or without fused multiply-add, value() is one rounding of a sum on any machine.
struct Grid {
  static constexpr std::int32_t kMostLevel = (1 << 12) - 1;  // larger magnitudes are sent as this

  float threshold = 0;      // a bfloat16
  float step = 0;           // 0: every value is the threshold
  std::int32_t offset = 0;  // of a step, in 64ths
  unsigned plain_bits = 0;  // the low bits of a level, which no model predicts
  double decay = 0;         // initial guess: the probability of a level relative to the one below
  std::int32_t most_level = kMostLevel;

  // Of a magnitude from the threshold to kMostMagnitude.
  std::int32_t level(float magnitude) const {
    if (step == 0) return 0;
    const float steps = (magnitude - threshold) / step;
    return static_cast<std::int32_t>(std::clamp(steps, 0.0F, static_cast<float>(most_level)));
  }
  float value(std::int32_t level) const {
    return threshold + static_cast<float>(level * 64 + offset) * (step * 0x1p-6F);
  }
};

// For magnitudes from `threshold` on. The distribution above it is close to exponential, with a
// mean that is sent; the step is that mean times 2^(4 − bits), as fine as symmetric levels of so
// many bits from the least to the largest value, and a value is read as the mean of its step. With
// one bit there are no levels: every value is read as the mean.
Grid grid_above(float threshold, float step, int bits);
float step_above(float threshold, double mean, int bits);

// For dense values, which are all sent, small ones as zero: levels are whole multiples of the step.
// They are few, so they get 4 bits at least.
Grid grid_around_zero(float step, int bits);
float step_around_zero(double mean, int bits);

// On the wire: a threshold in 16 bits, rounded down; a step in 13.
float threshold_below(float magnitude);
inline constexpr std::uint32_t kStepCodes = 1U << 13;
std::uint32_t step_code(float step);
float step_of(std::uint32_t code);
// Whether a packet may contain it.
bool threshold_is_sound(float threshold);
bool step_is_sound(float step);

}  // namespace strait::sync

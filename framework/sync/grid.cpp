#include "framework/sync/grid.h"

#include <array>
#include <bit>

namespace strait::sync {
namespace {

constexpr unsigned kStepShift = 18;   // leaves the exponent and five bits of the mantissa
constexpr unsigned kShortShift = 16;  // bfloat16
constexpr float kLeastStep = 0x1p-110F;
constexpr int kLeastBitsAroundZero = 4;

// The mean of an exponential's part within a step that is 4, 2, 1, … of its means wide, in 64ths
// of the step; of one bit: of a step that is one mean.
constexpr std::array<std::int32_t, 9> kOffsets = {0, 64, 15, 22, 27, 29, 31, 31, 32};
// e^-4, e^-2, e^-1 …: the share of the next step relative to this one. From four bits on the low
// bits are not modelled, so that the next upper level is always one mean away.
constexpr std::array<double, 9> kDecays = {0, 0, 0.018, 0.135, 0.368, 0.368, 0.368, 0.368, 0.368};
constexpr double kDecayAroundZero = 0.607;

float power_of_two(int exponent) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(exponent + 127) << 23U);
}

}  // namespace

Grid grid_above(float threshold, float step, int bits) {
  const auto at = static_cast<std::size_t>(bits);
  return {threshold,    step,
          kOffsets[at], static_cast<unsigned>(std::max(bits - 4, 0)),
          kDecays[at],  bits == 1 ? 0 : Grid::kMostLevel};
}

float step_above(float threshold, double mean, int bits) {
  const double beyond = std::max(mean - threshold, 0.0);
  return static_cast<float>(beyond * (bits == 1 ? 1.0F : power_of_two(4 - bits)));
}

Grid grid_around_zero(float step, int bits) {
  return {step / 2,
          step,
          32,
          static_cast<unsigned>(std::max(bits, kLeastBitsAroundZero) - 4),
          kDecayAroundZero,
          Grid::kMostLevel};
}

float step_around_zero(double mean, int bits) {
  return static_cast<float>(mean * power_of_two(3 - std::max(bits, kLeastBitsAroundZero)));
}

float threshold_below(float magnitude) {
  const auto bits = std::bit_cast<std::uint32_t>(magnitude);
  return std::bit_cast<float>(bits >> kShortShift << kShortShift);
}

std::uint32_t step_code(float step) {
  if (step < kLeastStep) return 0;
  return (std::bit_cast<std::uint32_t>(step) + (1U << (kStepShift - 1))) >> kStepShift;
}

float step_of(std::uint32_t code) { return std::bit_cast<float>(code << kStepShift); }

bool threshold_is_sound(float threshold) {
  return threshold >= kLeastMagnitude && threshold < kMostMagnitude;
}

bool step_is_sound(float step) {
  return step == 0 || (step >= kLeastStep && step <= kMostMagnitude * 8);
}

}  // namespace strait::sync

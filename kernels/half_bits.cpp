#include "kernels/half_bits.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/group_rules.h"

namespace strait::kernels {
namespace {

constexpr float kLargestHalf = 65504;
constexpr float kSmallestNormalHalf = 0x1p-14F;

}  // namespace

float float_of(Float16 half) {
  const std::uint32_t bits = half.low | static_cast<std::uint32_t>(half.high) << 8U;
  const std::uint32_t sign = (bits & 0x8000U) << 16U;
  const std::uint32_t size = bits & 0x7FFFU;
  if (size >= 0x7C00U) return float_of_bits(sign | kInfinityBits | (size & 0x3FFU) << 13U);
  if (size >= 0x400U) return float_of_bits(sign | ((size + (112U << 10U)) << 13U));
  return std::copysign(static_cast<float>(size) * 0x1p-24F, sign != 0 ? -1.0F : 1.0F);
}

Float16 float16_of(float value) {
  const std::uint32_t sign = (bits_of_float(value) & ~kSizeBits) >> 16U;
  const float size = std::min(std::fabs(value), kLargestHalf);
  std::uint32_t bits = 0;
  if (size < kSmallestNormalHalf) {
    // Between a half and one, adjacent values are 2^-24 apart, like subnormal halves.
    bits = bits_of_float(size + 0.5F) - bits_of_float(0.5F);
  } else {
    bits = bits_of_float(size) - (112U << 23U);
    bits = (bits + 0xFFFU + ((bits >> 13U) & 1U)) >> 13U;
  }
  bits |= sign;
  return {static_cast<std::uint8_t>(bits), static_cast<std::uint8_t>(bits >> 8U)};
}

template <>
float refused_value<float>() {
  return std::numeric_limits<float>::quiet_NaN();
}
template <>
Bfloat16 refused_value<Bfloat16>() {
  return {0xC0, 0x7F};
}
template <>
Float16 refused_value<Float16>() {
  return {0x00, 0x7E};
}

}  // namespace strait::kernels

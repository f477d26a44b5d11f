#pragma once

#include <bit>
#include <cstdint>

namespace strait::sync {

// Rounded to the nearest, ties to even.
inline std::uint16_t to_bfloat16(float value) {
  auto bits = std::bit_cast<std::uint32_t>(value);
  // A NaN must not become an infinity by losing its low bits.
  if (value != value) return static_cast<std::uint16_t>((bits >> 16U) | 0x40U);
  bits += 0x7FFFU + ((bits >> 16U) & 1U);
  return static_cast<std::uint16_t>(bits >> 16U);
}

inline float from_bfloat16(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16U);
}

}  // namespace strait::sync

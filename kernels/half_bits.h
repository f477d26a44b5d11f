#pragma once

#include <cstdint>

namespace strait::kernels {

// 16-bit floating-point numbers as bytes, because in a payload they may be at any address.
struct Bfloat16 {
  std::uint8_t low;
  std::uint8_t high;
};
struct Float16 {
  std::uint8_t low;
  std::uint8_t high;
};

// For processors without this conversion; exact.
float float_of(Float16 half);

// To nearest, ties to even; values beyond the largest finite number become that number. Not for
// NaN.
Float16 float16_of(float value);

// The NaN that is written for a refused group.
template <class T>
T refused_value();
template <>
float refused_value<float>();
template <>
Bfloat16 refused_value<Bfloat16>();
template <>
Float16 refused_value<Float16>();

}  // namespace strait::kernels

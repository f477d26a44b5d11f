#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <cstring>

// What the kernels use of half precision, exact.
struct __half {
  std::uint16_t bits;
};

inline __half __ushort_as_half(unsigned short bits) { return {bits}; }
inline unsigned short __half_as_ushort(__half half) { return half.bits; }

inline float __half2float(__half half) {
  const std::uint32_t sign = static_cast<std::uint32_t>(half.bits & 0x8000U) << 16U;
  const std::uint32_t exponent = (half.bits >> 10U) & 31U;
  const std::uint32_t mantissa = half.bits & 1023U;
  float value = 0;
  if (exponent == 0) {
    value = static_cast<float>(mantissa) * 0x1p-24F;
  } else {
    const std::uint32_t bits = (exponent == 31 ? 255U : exponent + 112U) << 23U | mantissa << 13U;
    std::memcpy(&value, &bits, sizeof(value));
  }
  std::uint32_t all = 0;
  std::memcpy(&all, &value, sizeof(all));
  all |= sign;
  std::memcpy(&value, &all, sizeof(value));
  return value;
}

// To nearest, ties to even; of finite values within the range of halves, as the kernels have them.
inline __half __float2half_rn(float value) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof(bits));
  const auto sign = static_cast<std::uint16_t>((bits >> 16U) & 0x8000U);
  bits &= 0x7FFFFFFFU;
  if (bits < 0x38800000U) {  // below 2^-14: counts of 2^-24, which the sum with 2^-1 rounds to
    float size = 0;
    std::memcpy(&size, &bits, sizeof(size));
    size += 0.5F;
    std::memcpy(&bits, &size, sizeof(bits));
    return {static_cast<std::uint16_t>(sign | (bits - 0x3F000000U))};
  }
  bits += 0xFFFU + ((bits >> 13U) & 1U);
  return {static_cast<std::uint16_t>(sign | ((bits - 0x38000000U) >> 13U))};
}

#pragma once

#include <cmath>
#include <cstring>

#include "kernels/draws.h"
#include "kernels/group_format.h"

// The arithmetic of a group that works on single numbers, which the CPU and the GPU code share to
// give the same bits. A scale is given by its scale code: it is the float whose bits are scale_code
// << 20. So there are eight scales per power of two, and the product of a scale and an odd level is
// exact.
namespace strait::kernels {

// The scale code of a group, with kTurned set if the group is rotated, or one of two special codes.
inline constexpr std::uint16_t kZeroScaleCode = 0;
inline constexpr std::uint16_t kRefusedScaleCode = 0x7FFF;
inline constexpr std::uint16_t kTurned = 0x8000;
inline constexpr int kLowestScaleCode = 8;  // 2^-126: scales are normal numbers

inline constexpr std::uint32_t kHugeBits = 0x7B800000;      // of kHuge
inline constexpr std::uint32_t kInfinityBits = 0x7F800000;  // NaN is above it
inline constexpr std::uint32_t kSizeBits = 0x7FFFFFFF;      // all but the sign

STRAIT_ON_BOTH inline std::uint32_t bits_of_float(float value) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

STRAIT_ON_BOTH inline float float_of_bits(std::uint32_t bits) {
  float value = 0;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

STRAIT_ON_BOTH constexpr int levels_of(int bits) { return 1 << bits; }

// From 6 bits on, nearest rounding does not clip and is itself unbiased to 0.1 %.
STRAIT_ON_BOTH inline bool restores_length(int bits, Rounding rounding) {
  return rounding == Rounding::unbiased && bits <= 5;
}

// Whether unbiased rounding draws the level of values between the two levels nearest to zero. At 2
// and 3 bits these are most levels, and errors would grow by a tenth or more.
STRAIT_ON_BOTH constexpr bool draws_small_values(int bits) { return bits == 4 || bits == 5; }

// The ratio of a group's scale to its largest value. At few bits the error is smaller if the
// largest values of a group are clipped. At 4 bits this is not worth it for values that are sent
// once, whose largest ones teach most (kernels/QUANTIZED.md).
STRAIT_ON_BOTH inline float reach_of(int bits, Rounding rounding) {
  float clip = 1;
  if (bits == 2) clip = 0.55F;
  if (bits == 3) clip = 0.75F;
  if (bits == 4 && rounding == Rounding::nearest) clip = 0.9F;
  return clip / static_cast<float>(levels_of(bits) - 1);
}

// `mark`: a scale code with or without kTurned.
STRAIT_ON_BOTH inline std::uint16_t bounded_code(std::uint32_t code, std::uint16_t mark) {
  const auto bounded =
      static_cast<std::uint16_t>(code < kLowestScaleCode ? kLowestScaleCode : code);
  return static_cast<std::uint16_t>(bounded | (mark & kTurned));
}

// Rounded up, so that without clipping the largest value is in range.
STRAIT_ON_BOTH inline std::uint16_t scale_code_of(float largest, float reach) {
  return bounded_code((bits_of_float(largest * reach) + 0xFFFFFU) >> 20U, 0);
}

// Whether the scale follows the mean square of a group instead of its largest value. With two
// levels on each side of zero, an outlier would enlarge all other values.
STRAIT_ON_BOTH constexpr bool fits_mean_square(int bits, Rounding rounding) {
  return bits == 2 && rounding == Rounding::nearest;
}

STRAIT_ON_BOTH inline float scale_of_code(std::uint16_t scale_code) {
  return float_of_bits(static_cast<std::uint32_t>(scale_code & ~kTurned) << 20U);
}

// The scale code with which the levels c, rounded with `scale_code`, have the length of their
// values: scale · 2 <t, t> / <2c - highest, t>, where t are the values over twice the scale. At
// most twice the scale, whatever was drawn. Rounded up or down at random, so that the mean is
// exact. Keeps kTurned.
STRAIT_ON_BOTH inline std::uint16_t restored_code(std::uint16_t scale_code, float squares,
                                                  float product, std::uint32_t draw) {
  const float least = product < squares ? squares : product;
  const std::uint32_t bits = bits_of_float(scale_of_code(scale_code) * (2.0F * squares / least));
  return bounded_code((bits + (draw & 0xFFFFFU)) >> 20U, scale_code);
}

// The scale code with the least error for Laplacian values of this mean square (for Gaussian ones
// the factor would be 0.9957 instead of 1.06). `squares`: the sum of the squares of `count` values
// over twice the scale of `scale_code`. Keeps kTurned.
STRAIT_ON_BOTH inline std::uint16_t fitted_code(std::uint16_t scale_code, float squares,
                                                int count) {
  constexpr float kFit = 1.06F;  // twice the scale over the root mean square
  const float root = std::sqrt(squares / static_cast<float>(count));
  const std::uint32_t bits = bits_of_float(scale_of_code(scale_code) * (kFit * root));
  return bounded_code((bits + 0x80000U) >> 20U, scale_code);
}

// Groups 31 powers of two below the token's largest get the lowest scale.
STRAIT_ON_BOTH inline std::uint8_t scale_byte(std::uint16_t scale_code, int top) {
  if (scale_code == kZeroScaleCode) return kZeroGroup;
  if (scale_code == kRefusedScaleCode) return kRefusedGroup;
  const int byte = (scale_code & ~kTurned) - 8 * top + 247;
  return static_cast<std::uint8_t>(byte < 1 ? 1 : byte);
}

// Bounded, so that any bytes decode to finite values.
STRAIT_ON_BOTH inline float scale_of(std::uint8_t byte, int top, int bits) {
  const int highest = 8 * (248 - bits);
  int scale_code = byte + 8 * top - 247;
  scale_code = scale_code < kLowestScaleCode ? kLowestScaleCode : scale_code;
  scale_code = scale_code > highest ? highest : scale_code;
  return float_of_bits(static_cast<std::uint32_t>(scale_code) << 20U);
}

STRAIT_ON_BOTH inline float inverse_of(float scale) { return 1.0F / (2.0F * scale); }

// A rotation scales by 1 / sqrt(group), as powers of two in the two directions. If these differ by
// a factor of two, sizes are compared with the square root of a half between them.
STRAIT_ON_BOTH inline float turn_factor(int group) { return group == 32 ? 0.25F : 0.125F; }
STRAIT_ON_BOTH inline float turn_back_factor(int group) { return group == 128 ? 0.0625F : 0.125F; }
STRAIT_ON_BOTH inline float turned_size(float largest, int group) {
  return group == 64 ? largest : largest * 0.70710678F;
}

// Where the parts of a token begin.
STRAIT_ON_BOTH constexpr std::int64_t flags_offset(std::int64_t groups) { return 1 + groups; }
STRAIT_ON_BOTH constexpr std::int64_t planes_offset(const GroupFormat& format,
                                                    std::int64_t groups) {
  return 1 + groups + (format.rotate ? (groups + 7) / 8 : 0);
}

}  // namespace strait::kernels

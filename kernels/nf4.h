#pragma once

#include <array>

#include "kernels/group_format.h"

// NF4, the four-bit type of QLoRA: sixteen fixed levels between -1 and 1, and for every block of 64
// values the size of its largest one, in float32. A value becomes the level nearest to the ratio of
// value and size (the lower one of two equally near levels).
namespace strait::kernels {

inline constexpr std::int64_t kNf4Block = 64;

// As published with QLoRA.
inline constexpr std::array<float, 16> kNf4Levels = {
    -1.0F,
    -0.6961928009986877F,
    -0.5250730514526367F,
    -0.39491748809814453F,
    -0.28444138169288635F,
    -0.18477343022823334F,
    -0.09105003625154495F,
    0.0F,
    0.07958029955625534F,
    0.16093020141124725F,
    0.24611230194568634F,
    0.33791524171829224F,
    0.44070982933044434F,
    0.5626170039176941F,
    0.7229568362236023F,
    1.0F,
};

constexpr std::int64_t nf4_blocks(std::int64_t count) {
  return (count + kNf4Block - 1) / kNf4Block;
}

// `levels`: (count + 1) / 2 bytes, the first of two values in the upper half. `sizes`: one per
// block. False: a value is NaN, infinite or at least kHuge. The same bits on every processor.
[[nodiscard]] bool quantize_nf4(const void* values, Element element, std::int64_t count,
                                std::uint8_t* levels, float* sizes);

// Level times size, rounded to float32.
void dequantize_nf4(const std::uint8_t* levels, const float* sizes, std::int64_t count,
                    void* values, Element element);

}  // namespace strait::kernels

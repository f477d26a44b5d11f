#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/group_format.h"

// NF4, the four-bit data type of QLoRA: sixteen fixed levels between -1 and 1, and for every block
// of 64 values the size of its largest one, in float32. A value becomes the level nearest to itself
// over that size (the lower one of two that are equally near).
namespace strait::kernels {

inline constexpr std::int64_t kNf4Block = 64;

constexpr std::int64_t nf4_blocks(std::int64_t count) {
  return (count + kNf4Block - 1) / kNf4Block;
}

// `levels`: (count + 1) / 2 bytes, the first of two values in the upper half. `sizes`: one of every
// block. False: a value is NaN, infinite or at least kHuge. Same bits on every processor.
[[nodiscard]] bool quantize_nf4(const void* values, Element element, std::int64_t count,
                                std::uint8_t* levels, float* sizes);

// Level times size, as float32 rounds it.
void dequantize_nf4(const std::uint8_t* levels, const float* sizes, std::int64_t count,
                    void* values, Element element);

}  // namespace strait::kernels

#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace strait::kernels {

// A moment of an optimizer in few bits: bfloat16, or a byte per value and a float32 size per block.
// All tensors are flat, contiguous and on one device; a block never spans two parameters.
//
// A byte is a place in a table of 256 numbers of at most 1, which are as dense, relative to their
// size, at 1e-6 as at 1 (Dettmers' dynamic tree); the size of a block is its largest magnitude.
// Second moments are coded by their square roots, since the root is what an update divides by: so
// the smallest is 1e-14 of the largest. None becomes zero that was not.
//
// Rounding is random, and right in the mean: with beta2 = 0.999 a moment changes by less than half
// of a code's step, and would stand still if it were rounded to the nearest. The draws follow from
// the key and the place in the parameter, so neither threads nor the split of a model change them.
inline constexpr std::int64_t kMomentBlock = 256;
inline constexpr std::int64_t moment_blocks(std::int64_t values) {
  return (values + kMomentBlock - 1) / kMomentBlock;
}

enum class MomentKind : std::uint8_t { first, second };

struct CodedMoment {
  at::Tensor values;  // uint8, or bfloat16
  at::Tensor sizes;   // float32, one per block; undefined for bfloat16
};

// Into `target`, float32.
void decode_moment(const CodedMoment& coded, MomentKind kind, const at::Tensor& target);
void encode_moment(const at::Tensor& source, MomentKind kind, std::uint64_t key,
                   const CodedMoment& coded);

}  // namespace strait::kernels

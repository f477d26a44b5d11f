#pragma once

#include <cuda_fp16.h>

#include "kernels/group_rules.h"

// What a warp does with 128 adjacent values of a token: lane l holds values l, 32 + l, 64 + l, 96 +
// l. A chunk is 4, 2 or 1 groups, and the groups of an 8-bit entry lie in it, too. A part is 32
// values; what is said per part is the same in all lanes, and in all parts of one group.
namespace strait::kernels {

constexpr int kParts = 4;
constexpr int kChunk = 128;
constexpr unsigned kAllLanes = 0xFFFFFFFFU;

struct Chunk {
  float part[kParts];
};

__device__ inline int lane_id() { return static_cast<int>(threadIdx.x % 32); }

__device__ inline float load_element(const void* data, Element element, std::int64_t i) {
  if (element == Element::float32) return static_cast<const float*>(data)[i];
  const std::uint16_t bits = static_cast<const std::uint16_t*>(data)[i];
  if (element == Element::float16) return __half2float(__ushort_as_half(bits));
  return float_of_bits(static_cast<std::uint32_t>(bits) << 16U);
}

__device__ inline std::uint16_t bfloat16_bits(float value) {
  const std::uint32_t bits = bits_of_float(value);
  return static_cast<std::uint16_t>((bits + 0x7FFFU + ((bits >> 16U) & 1U)) >> 16U);
}

__device__ inline void store_element(void* data, Element element, std::int64_t i, float value,
                                     bool refused) {
  if (element == Element::float32) {
    static_cast<float*>(data)[i] = refused ? float_of_bits(0x7FC00000) : value;
  } else if (element == Element::bfloat16) {
    static_cast<std::uint16_t*>(data)[i] = refused ? 0x7FC0 : bfloat16_bits(value);
  } else {
    const __half half = __float2half_rn(fminf(fmaxf(value, -65504.0F), 65504.0F));
    static_cast<std::uint16_t*>(data)[i] = refused ? 0x7E00 : __half_as_ushort(half);
  }
}

// The bits of the largest size in each part's group, as integers: so NaN is the largest of all.
__device__ inline void largest_bits(const Chunk& chunk, int group, std::uint32_t* largest) {
  for (int p = 0; p < kParts; ++p) {
    largest[p] = bits_of_float(chunk.part[p]) & kSizeBits;
    for (int stride = 16; stride > 0; stride /= 2) {
      largest[p] = max(largest[p], __shfl_xor_sync(kAllLanes, largest[p], stride));
    }
  }
  for (int p = 0; p < kParts && group >= 64; p += 2) {
    largest[p] = largest[p + 1] = max(largest[p], largest[p + 1]);
  }
  if (group == 128) {
    const std::uint32_t all = max(largest[0], largest[2]);
    for (int p = 0; p < kParts; ++p) largest[p] = all;
  }
}

// Sums over each part's group, in the order of ColumnSums (groups-inl.h): 16 columns from their
// first value to their last, then halves of the columns. Every lane and part has the result.
__device__ inline void group_sums(const Chunk& chunk, int group, float* sums) {
  const int parts = group / 32;
  for (int first = 0; first < kParts; first += parts) {
    float column = 0.0F;
    for (int p = first; p < first + parts; ++p) {
      const float upper = __shfl_down_sync(kAllLanes, chunk.part[p], 16);
      column = __fadd_rn(__fadd_rn(column, chunk.part[p]), upper);
    }
    for (int half = 8; half > 0; half /= 2) {
      column = __fadd_rn(column, __shfl_down_sync(kAllLanes, column, half));
    }
    column = __shfl_sync(kAllLanes, column, 0);
    for (int p = first; p < first + parts; ++p) sums[p] = column;
  }
}

__device__ inline void part_butterflies(Chunk& chunk, int stride) {
  for (int p = 0; p < kParts; ++p) {
    if ((p & stride) != 0) continue;
    const float left = chunk.part[p];
    const float right = chunk.part[p + stride];
    chunk.part[p] = __fadd_rn(left, right);
    chunk.part[p + stride] = __fsub_rn(left, right);
  }
}

// Fast Hadamard transform of every group, strides 1, 2, 4, …, then times `factor`.
__device__ inline void turn(Chunk& chunk, int group, float factor) {
  for (int stride = 1; stride < 32; stride *= 2) {
    for (int p = 0; p < kParts; ++p) {
      const float mine = chunk.part[p];
      const float other = __shfl_xor_sync(kAllLanes, mine, stride);
      const bool upper = (lane_id() & stride) != 0;
      chunk.part[p] = upper ? __fsub_rn(other, mine) : __fadd_rn(mine, other);
    }
  }
  if (group >= 64) part_butterflies(chunk, 1);
  if (group == 128) part_butterflies(chunk, 2);
  for (int p = 0; p < kParts; ++p) chunk.part[p] = __fmul_rn(chunk.part[p], factor);
}

// Turns the parts whose bit in `mask` is set.
__device__ inline void turn_some(Chunk& chunk, int group, float factor, unsigned mask) {
  if (mask == 0) return;
  Chunk turned = chunk;
  turn(turned, group, factor);
  for (int p = 0; p < kParts; ++p) {
    if ((mask >> p & 1U) != 0) chunk.part[p] = turned.part[p];
  }
}

// A token's bytes.
struct Token {
  std::uint8_t* bytes;
  GroupFormat format;
  std::int64_t width;

  __device__ std::int64_t groups() const { return groups_of(format, width); }
  __device__ int plane_bytes(std::int64_t group) const {
    const std::int64_t rest = width - group * format.group;
    return static_cast<int>(((rest < format.group ? rest : format.group) + 7) / 8);
  }
  __device__ std::uint8_t* planes(std::int64_t group) const {
    return bytes + planes_offset(format, groups()) + group * format.bits * (format.group / 8);
  }
};

// One value of a token that is not rotated. `top` may be older than the token's first byte.
__device__ inline float read_value(const Token& token, int top, std::int64_t i) {
  const std::int64_t group = i / token.format.group;
  const std::uint8_t byte = token.bytes[1 + group];
  if (byte == kZeroGroup) return 0.0F;
  if (byte == kRefusedGroup) return -0.0F;
  const auto at = static_cast<int>(i % token.format.group);
  const std::uint8_t* const planes = token.planes(group);
  const int stride = token.plane_bytes(group);
  int level = 0;
  for (int bit = 0; bit < token.format.bits; ++bit) {
    level |= ((planes[bit * stride + at / 8] >> (at % 8)) & 1) << bit;
  }
  const int odd = 2 * level - (levels_of(token.format.bits) - 1);
  return __fmul_rn(static_cast<float>(odd), scale_of(byte, top, token.format.bits));
}

}  // namespace strait::kernels

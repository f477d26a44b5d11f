#pragma once

#include "kernels/levels.cuh"

// What a block does with one token; its warps take the chunks in turn. `scale_codes` lie in shared
// memory, one per group.
namespace strait::kernels {

constexpr int kThreads = 128;

__device__ inline std::int64_t first_chunk() { return threadIdx.x / 32; }
__device__ inline std::int64_t chunks_of(std::int64_t width) {
  return (width + kChunk - 1) / kChunk;
}
__device__ inline std::int64_t index_of(std::int64_t chunk, int part) {
  return chunk * kChunk + part * 32 + lane_id();
}

// The values of a chunk of a message, rotated back; refused ones are -0, which changes nothing that
// it is added to, and their parts are set in the result.
__device__ inline unsigned read_chunk(const Token& token, std::int64_t chunk, Chunk& values) {
  const GroupFormat& format = token.format;
  unsigned turned = 0;
  unsigned refused = 0;
  for (int p = 0; p < kParts; ++p) {
    const std::int64_t i = index_of(chunk, p);
    const std::int64_t group = (chunk * kChunk + p * 32) / format.group;
    values.part[p] = i < token.width ? read_value(token, token.bytes[0], i) : 0.0F;
    if (group >= token.groups()) continue;
    const std::uint8_t byte = token.bytes[1 + group];
    if (byte == kRefusedGroup) refused |= 1U << p;
    const bool whole = (group + 1) * format.group <= token.width;
    if (!format.rotate || !whole || byte == kZeroGroup || byte == kRefusedGroup) continue;
    const std::uint8_t flags = token.bytes[flags_offset(token.groups()) + group / 8];
    if ((flags >> (group % 8) & 1) != 0) turned |= 1U << p;
  }
  turn_some(values, format.group, turn_back_factor(format.group), turned);
  return refused;
}

// Chooses the scale codes of a chunk's groups.
__device__ inline void weigh_chunk(const Chunk& values, const Token& token, std::int64_t chunk,
                                   float reach, std::uint32_t refused_from,
                                   std::uint16_t* scale_codes) {
  const int size = token.format.group;
  std::uint32_t plain[kParts];
  std::uint32_t rotated[kParts];
  largest_bits(values, size, plain);
  if (token.format.rotate) {
    Chunk turned = values;
    turn(turned, size, turn_factor(size));
    largest_bits(turned, size, rotated);
  }
  for (int p = 0; p < kParts; ++p) {
    const std::int64_t begin = chunk * kChunk + p * 32;
    if (begin % size != 0 || begin >= token.width || lane_id() != 0) continue;
    std::uint16_t scale_code = kZeroScaleCode;
    if (plain[p] >= refused_from) {
      scale_code = kRefusedScaleCode;
    } else if (plain[p] != 0) {
      scale_code = scale_code_of(float_of_bits(plain[p]), reach);
      if (token.format.rotate && begin + size <= token.width &&
          turned_size(float_of_bits(rotated[p]), size) < float_of_bits(plain[p])) {
        scale_code = scale_code_of(float_of_bits(rotated[p]), reach) | kTurned;
      }
    }
    scale_codes[begin / size] = scale_code;
  }
}

// All threads, after the scale codes are in shared memory; returns the top exponent.
__device__ inline int write_header(const Token& token, const std::uint16_t* scale_codes) {
  __shared__ int top;
  __syncthreads();
  if (threadIdx.x == 0) top = 0;
  __syncthreads();
  const std::int64_t groups = token.groups();
  for (std::int64_t g = threadIdx.x; g < groups; g += kThreads) {
    if (scale_codes[g] != kRefusedScaleCode) atomicMax(&top, (scale_codes[g] & ~kTurned) >> 3);
  }
  __syncthreads();
  if (threadIdx.x == 0) token.bytes[0] = static_cast<std::uint8_t>(top);
  if (!token.format.rotate) return top;
  for (std::int64_t byte = threadIdx.x; byte < (groups + 7) / 8; byte += kThreads) {
    unsigned flags = 0;
    for (int k = 0; k < 8 && byte * 8 + k < groups; ++k) {
      if ((scale_codes[byte * 8 + k] & kTurned) != 0) flags |= 1U << k;
    }
    token.bytes[flags_offset(groups) + byte] = static_cast<std::uint8_t>(flags);
  }
  return top;
}

// Scale bytes and planes of a chunk, and in `values` what they stand for, not yet rotated back.
__device__ inline void write_chunk(Chunk& values, const Token& token, std::int64_t chunk, int top,
                                   const std::uint16_t* scale_codes, const Draw& draw,
                                   std::uint32_t row_index) {
  const int bits = token.format.bits;
  const std::uint64_t words = draw_words(draw.key);
  const bool restored = restores_length(bits, draw.rounding);
  std::uint16_t codes[kParts];
  if (restored) rounding_codes(values, token.format.group, reach_of(bits, draw.rounding), codes);
  for (int p = 0; p < kParts; ++p) {
    const std::int64_t begin = chunk * kChunk + p * 32;
    if (begin >= token.width) continue;
    const std::int64_t group = begin / token.format.group;
    const std::uint8_t byte = scale_byte(scale_codes[group], top);
    const float scale = scale_of(byte, top, bits);
    const std::int64_t i = begin + lane_id();
    int level = 0;
    if (byte != kZeroGroup && byte != kRefusedGroup && i < token.width) {
      const float rounding_scale = restored ? scale_of_code(codes[p]) : scale;
      level = level_of(values.part[p], inverse_of(rounding_scale), bits, draw, words,
                       row_index + static_cast<std::uint32_t>(i));
    }
    values.part[p] = __fmul_rn(static_cast<float>(2 * level - (levels_of(bits) - 1)), scale);
    if (byte == kZeroGroup) values.part[p] = 0.0F;
    if (lane_id() == 0) token.bytes[1 + group] = byte;
    // Lane 4b + j writes byte j of plane b.
    unsigned mine = 0;
    for (int bit = 0; bit < bits; ++bit) {
      const unsigned plane = __ballot_sync(kAllLanes, (level >> bit & 1) != 0);
      if (lane_id() / 4 == bit) mine = plane;
    }
    const int stride = token.plane_bytes(group);
    const auto at = static_cast<int>(begin % token.format.group) / 8 + lane_id() % 4;
    if (lane_id() / 4 < bits && at < stride) {
      token.planes(group)[lane_id() / 4 * stride + at] =
          static_cast<std::uint8_t>(mine >> (lane_id() % 4 * 8));
    }
  }
}

}  // namespace strait::kernels

#pragma once

#include "kernels/cuda_launch.cuh"

// The encoder's half of a token on a GPU: from values to a message.
namespace strait::kernels {

// The values of a row since `Base`, which has value(i).
template <class Base>
struct Difference {
  Values row;
  std::int64_t token;
  Base base;

  __device__ float value(std::int64_t i) const {
    return load_element(row.data, row.element, token * row.width + i);
  }
  __device__ void read(std::int64_t chunk, Chunk& change) const {
    for (int p = 0; p < kParts; ++p) {
      const std::int64_t i = index_of(chunk, p);
      change.part[p] = 0.0F;
      if (i >= row.width) continue;
      const float now = value(i);
      // A huge value is refused wherever its base is.
      const bool fine = (bits_of_float(now) & kSizeBits) < kHugeBits;
      change.part[p] = fine ? __fsub_rn(now, base.value(i)) : float_of_bits(0x7FC00000);
    }
  }
};

// Unbiased rounding: scale codes of a chunk's groups that restore their lengths. `values` are
// turned where their group is.
__device__ inline void restore_lengths(const Chunk& values, const Token& token, std::int64_t chunk,
                                       const Draw& draw, std::uint32_t row_index,
                                       std::uint16_t* scale_codes) {
  const int bits = token.format.bits;
  const int size = token.format.group;
  std::uint16_t codes[kParts];
  rounding_codes(values, size, reach_of(bits, draw.rounding), codes);
  Chunk squares;
  Chunk products;
  for (int p = 0; p < kParts; ++p) {
    const float inverse = inverse_of(scale_of_code(codes[p]));
    const float steps = __fmul_rn(values.part[p], inverse);
    const int level = level_of(values.part[p], inverse, bits, draw, 0, 0);
    squares.part[p] = __fmul_rn(steps, steps);
    products.part[p] = __fmul_rn(static_cast<float>(2 * level - (levels_of(bits) - 1)), steps);
  }
  float square[kParts];
  float product[kParts];
  group_sums(squares, size, square);
  group_sums(products, size, product);
  const std::uint64_t words = draw_words(draw.key);
  for (int p = 0; p < kParts; ++p) {
    const std::int64_t begin = chunk * kChunk + p * 32;
    if (begin % size != 0 || begin >= token.width || lane_id() != 0) continue;
    std::uint16_t& scale_code = scale_codes[begin / size];
    if (scale_code == kZeroScaleCode || scale_code == kRefusedScaleCode) continue;
    const auto turned = static_cast<std::uint16_t>(scale_code & kTurned);
    scale_code = restored_code(codes[p] | turned, square[p], product[p],
                               draw_of(words, row_index + static_cast<std::uint32_t>(begin)));
  }
}

// Turns the groups of a chunk whose scale code says so.
__device__ inline void turn_chosen(Chunk& change, const Token& message, std::int64_t chunk,
                                   const std::uint16_t* scale_codes) {
  unsigned turned = 0;
  for (int p = 0; p < kParts; ++p) {
    const std::int64_t begin = chunk * kChunk + p * 32;
    if (begin < message.width && scale_codes[begin / message.format.group] != kRefusedScaleCode &&
        (scale_codes[begin / message.format.group] & kTurned) != 0) {
      turned |= 1U << p;
    }
  }
  turn_some(change, message.format.group, turn_factor(message.format.group), turned);
}

// All threads. The message is complete when all have returned.
template <class Base>
__device__ void write_message(const Difference<Base>& from, const Token& message, const Draw& draw,
                              std::uint16_t* scale_codes, ThreadSums& sums) {
  const std::int64_t chunks = chunks_of(message.width);
  const float reach = reach_of(message.format.bits, draw.rounding);
  for (std::int64_t c = first_chunk(); c < chunks; c += kThreads / 32) {
    Chunk change;
    from.read(c, change);
    for (int p = 0; p < kParts; ++p) {
      const std::int64_t i = index_of(c, p);
      const double now = i < message.width ? from.value(i) : 0.0F;
      sums.value += now * now;
      sums.change += static_cast<double>(change.part[p]) * change.part[p];
    }
    weigh_chunk(change, message, c, reach, kHugeBits, scale_codes);
  }
  const auto row_index = static_cast<std::uint32_t>(from.token * message.width);
  if (restores_length(message.format.bits, draw.rounding)) {
    // A warp's chunks are its own here and above: what it wrote is what it reads.
    for (std::int64_t c = first_chunk(); c < chunks; c += kThreads / 32) {
      __syncwarp();
      Chunk change;
      from.read(c, change);
      turn_chosen(change, message, c, scale_codes);
      restore_lengths(change, message, c, draw, row_index, scale_codes);
    }
  }
  const int top = write_header(message, scale_codes);
  for (std::int64_t c = first_chunk(); c < chunks; c += kThreads / 32) {
    Chunk change;
    from.read(c, change);
    turn_chosen(change, message, c, scale_codes);
    write_chunk(change, message, c, top, scale_codes, draw, row_index);
  }
  __syncthreads();
}

// What the other side will not know.
template <class Base>
struct ErrorSink {
  Difference<Base> from;
  ThreadSums* sums;

  __device__ void take(std::int64_t i, float known, bool /*refused*/) const {
    const double error = static_cast<double>(from.value(i)) - known;
    sums->error += error * error;
  }
};

}  // namespace strait::kernels

#pragma once

#include "kernels/tokens.cuh"

// What both sides do to a sample's entry, one block per token, as entries-inl.h does on a CPU.
namespace strait::kernels {

// A token of an entry, as it was when the block came to it.
struct Entry {
  CacheFormat kind;
  bool fresh;
  Token token;  // of an 8-bit entry; its bytes are those of either kind
  int top;

  __device__ Entry(CacheFormat kind_of, bool is_fresh, std::uint8_t* bytes, std::int64_t width)
      : kind(kind_of), fresh(is_fresh), token{bytes, kEntryFormat, width}, top(bytes[0]) {}

  __device__ std::uint16_t* halves() const { return reinterpret_cast<std::uint16_t*>(token.bytes); }
  __device__ float value(std::int64_t i) const {
    if (fresh) return 0.0F;
    if (kind == CacheFormat::eight_bits) return read_value(token, top, i);
    return float_of_bits(static_cast<std::uint32_t>(halves()[i]) << 16U);
  }
};

// Where the values come from that an 8-bit entry is to hold.
template <class Source>
__device__ void store_eight_bits(const Entry& entry, const Source& source,
                                 std::uint16_t* scale_codes) {
  const std::int64_t chunks = chunks_of(entry.token.width);
  const float reach = reach_of(kEntryFormat.bits, Rounding::nearest);
  for (std::int64_t c = first_chunk(); c < chunks; c += kThreads / 32) {
    Chunk values;
    source.read(c, values);
    weigh_chunk(values, entry.token, c, reach, kInfinityBits, scale_codes);
  }
  // Nobody reads another chunk's part of the old entry, but all read its first byte; `entry` has
  // it.
  const int top = write_header(entry.token, scale_codes);
  for (std::int64_t c = first_chunk(); c < chunks; c += kThreads / 32) {
    Chunk values;
    source.read(c, values);
    __syncwarp();
    write_chunk(values, entry.token, c, top, scale_codes, Draw{}, 0);
    source.known(c, values);
  }
}

// The entry plus the change in a message. `Sink` is told what the entry stands for then.
template <class Sink>
struct Advanced {
  Entry entry;
  Token message;
  Sink sink;

  __device__ unsigned read(std::int64_t chunk, Chunk& values) const {
    const unsigned refused = read_chunk(message, chunk, values);
    for (int p = 0; p < kParts; ++p) {
      const std::int64_t i = index_of(chunk, p);
      values.part[p] = i < message.width ? __fadd_rn(entry.value(i), values.part[p]) : 0.0F;
    }
    return refused;
  }

  __device__ void known(std::int64_t chunk, const Chunk& values) const { tell(chunk, values, 0); }

  __device__ void tell(std::int64_t chunk, const Chunk& values, unsigned refused) const {
    for (int p = 0; p < kParts; ++p) {
      const std::int64_t i = index_of(chunk, p);
      if (i < message.width) sink.take(i, values.part[p], (refused >> p & 1U) != 0);
    }
  }

  __device__ void bfloat16() const {
    for (std::int64_t c = first_chunk(); c < chunks_of(message.width); c += kThreads / 32) {
      Chunk values;
      const unsigned refused = read(c, values);
      for (int p = 0; p < kParts; ++p) {
        const std::int64_t i = index_of(c, p);
        const std::uint16_t bits = bfloat16_bits(values.part[p]);
        if (i < message.width) entry.halves()[i] = bits;
        values.part[p] = float_of_bits(static_cast<std::uint32_t>(bits) << 16U);
      }
      tell(c, values, refused);
    }
  }

  // With refused groups in the message nothing of an 8-bit token moves.
  __device__ void keep() const {
    const std::int64_t bytes = token_bytes(entry.token.format, message.width);
    for (std::int64_t b = threadIdx.x; entry.fresh && b < bytes; b += kThreads) {
      entry.token.bytes[b] = 0;
    }
    for (std::int64_t c = first_chunk(); c < chunks_of(message.width); c += kThreads / 32) {
      Chunk values;
      const unsigned refused = read_chunk(message, c, values);
      for (int p = 0; p < kParts; ++p) {
        const std::int64_t i = index_of(c, p);
        values.part[p] = i < message.width ? entry.value(i) : 0.0F;
      }
      tell(c, values, refused);
    }
  }

  // All threads; the message is complete.
  __device__ void advance(std::uint16_t* scale_codes) const {
    if (entry.kind == CacheFormat::bfloat16) return bfloat16();
    int refused = 0;
    for (std::int64_t g = threadIdx.x; g < message.groups(); g += kThreads) {
      if (message.bytes[1 + g] == kRefusedGroup) refused = 1;
    }
    if (__syncthreads_or(refused) != 0) return keep();
    store_eight_bits(entry, *this, scale_codes);
  }
};

}  // namespace strait::kernels

#pragma once

#include "kernels/gpu_rows.h"
#include "kernels/staged_token.cuh"

// How tokens are distributed on a GPU: a block has one token, or several narrow ones, each in its
// own slot with whole warps and a part of the shared memory.
namespace strait::kernels {

constexpr int kMostWarps = 16;

// The results of each warp of a slot.
struct WarpResults {
  int top[kMostWarps];      // of the message
  int refused[kMostWarps];  // groups of the message
  float value[kMostWarps];  // sums of squares
  float change[kMostWarps];
  float error[kMostWarps];
};

// Offsets in a slot's shared memory; the same for all rows of a launch.
struct SlotLayout {
  int codes = 0;
  int message = 0;
  int bytes = 0;
  int rounds = 0;  // octets per thread
};

struct Slot {
  std::uint8_t* memory;
  SlotLayout layout;
  int thread;   // of the slot
  int threads;  // a multiple of 32

  __device__ WarpResults& results() const { return *reinterpret_cast<WarpResults*>(memory); }
  // One per group of the message.
  __device__ std::uint16_t* scale_codes() const {
    return reinterpret_cast<std::uint16_t*>(memory + layout.codes);
  }
  // At the same offset from a multiple of 16 as `global`, so that both are copied in the same
  // vectors.
  __device__ std::uint8_t* message(const void* global) const {
    return memory + layout.message + (reinterpret_cast<std::uintptr_t>(global) % sizeof(uint4));
  }
  __device__ int warp() const { return thread / 32; }
  __device__ int warps() const { return threads / 32; }
  // A thread's octets are thread, thread + threads, and so on: the same number of rounds in every
  // warp.
  __device__ int rounds() const { return layout.rounds; }
  __device__ int octet(int round) const { return round * threads + thread; }
};

__device__ inline int largest_of(const int* results, int warps) {
  int largest = 0;
  for (int w = 0; w < warps; ++w) largest = max(largest, results[w]);
  return largest;
}

// The threads of a slot copy between shared memory and GPU or host memory, in vectors.
__device__ inline void copy_bytes(const Slot& slot, std::uint8_t* to, const std::uint8_t* from,
                                  int size) {
  constexpr int vector = sizeof(uint4);
  const auto off = static_cast<int>(reinterpret_cast<std::uintptr_t>(to) % vector);
  const int begin = min(size, (vector - off) % vector);
  const int vectors = (size - begin) / vector;
  const int rest = begin + vectors * vector;
  if (slot.thread < begin) to[slot.thread] = from[slot.thread];
  auto* const wide_to = reinterpret_cast<uint4*>(to + begin);
  const auto* const wide_from = reinterpret_cast<const uint4*>(from + begin);
  for (int i = slot.thread; i < vectors; i += slot.threads) wide_to[i] = wide_from[i];
  if (slot.thread < size - rest) to[rest + slot.thread] = from[rest + slot.thread];
}

// Writes the scale codes of a slot in the form that precedes the planes.
template <int kBits>
__device__ inline void write_header(const Slot& slot, const StagedToken<kBits>& token, int top) {
  const std::uint16_t* const scale_codes = slot.scale_codes();
  if (slot.thread == 0) token.bytes[0] = static_cast<std::uint8_t>(top);
  for (int g = slot.thread; g < token.groups; g += slot.threads) {
    token.bytes[1 + g] = scale_byte(scale_codes[g], top);
  }
  if (!token.rotate) return;
  for (int byte = slot.thread; byte < (token.groups + 7) / 8; byte += slot.threads) {
    unsigned flags = 0;
    for (int k = 0; k < 8 && byte * 8 + k < token.groups; ++k) {
      if ((scale_codes[byte * 8 + k] & kTurned) != 0) flags |= 1U << k;
    }
    token.bytes[1 + token.groups + byte] = static_cast<std::uint8_t>(flags);
  }
}

}  // namespace strait::kernels

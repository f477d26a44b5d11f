#pragma once

#include "kernels/slots.cuh"

// Sums over encoded values. A thread adds in the order of its octets, lanes in halves, warps and
// tokens in order: the same input gives the same bits.
namespace strait::kernels {

// Of one token; 16 bytes, so that one load reads it.
struct TokenSquares {
  float value = 0;
  float change = 0;
  float error = 0;
  std::int32_t refused_groups = 0;
};

static_assert(sums_scratch_bytes(1) == kRowsPerLaunch * sizeof(unsigned) + sizeof(TokenSquares));

// Shared by the threads of a block for a row's sums.
struct RowResults {
  double value[kMostWarps];
  double change[kMostWarps];
  double error[kMostWarps];
  long long refused_groups[kMostWarps];
  int is_last;
};

// Where a launch stores its sums; see RowSums.
struct LaunchSums {
  SquareSums* rows = nullptr;
  unsigned* finished_blocks = nullptr;  // per row
  TokenSquares* tokens = nullptr;
};

__device__ inline float sum_of_squares(const Octet& octet) {
  float sum = 0.0F;
  for (const float value : octet.value) sum = __fadd_rn(sum, __fmul_rn(value, value));
  return sum;
}

template <class Number>
__device__ inline Number sum_of_warp(Number value) {
  return over_warp(value, [](Number left, Number right) { return left + right; });
}

// One thread adds the warps' sums to the token's, after a barrier.
__device__ inline void finish_token(const WarpResults& results, int warps, int refused_groups,
                                    TokenSquares& token) {
  TokenSquares sums;
  sums.refused_groups = refused_groups;
  for (int w = 0; w < warps; ++w) {
    sums.value = __fadd_rn(sums.value, results.value[w]);
    sums.change = __fadd_rn(sums.change, results.change[w]);
    sums.error = __fadd_rn(sums.error, results.error[w]);
  }
  token = sums;
}

// The last block of the row adds up its tokens. A token with refused values, or whose squares
// exceed float32, is left out. Called by all threads of every block of the row, after
// finish_token().
__device__ inline void finish_row(RowResults& shared, const TokenSquares* tokens,
                                  std::int64_t count, unsigned blocks, unsigned* finished,
                                  SquareSums* row) {
  const auto thread = static_cast<int>(threadIdx.y * blockDim.x + threadIdx.x);
  const auto threads = static_cast<int>(blockDim.x * blockDim.y);
  // Makes the writes of this block visible to the block that counts up to `blocks`.
  __threadfence();
  __syncthreads();
  if (thread == 0) shared.is_last = atomicAdd(finished, 1U) + 1 == blocks ? 1 : 0;
  __syncthreads();
  if (shared.is_last == 0) return;
  __threadfence();
  double value = 0;
  double change = 0;
  double error = 0;
  long long refused_groups = 0;
  for (std::int64_t t = thread; t < count; t += threads) {
    const float4 squares = __ldcg(reinterpret_cast<const float4*>(tokens + t));
    const auto refused = static_cast<std::int32_t>(bits_of_float(squares.w));
    refused_groups += refused;
    const float all = __fadd_rn(__fadd_rn(squares.x, squares.y), squares.z);
    if (refused != 0 || (bits_of_float(all) & kSizeBits) >= kInfinityBits) continue;
    value += squares.x;
    change += squares.y;
    error += squares.z;
  }
  value = sum_of_warp(value);
  change = sum_of_warp(change);
  error = sum_of_warp(error);
  refused_groups = sum_of_warp(refused_groups);
  if (lane_id() == 0) {
    shared.value[thread / 32] = value;
    shared.change[thread / 32] = change;
    shared.error[thread / 32] = error;
    shared.refused_groups[thread / 32] = refused_groups;
  }
  __syncthreads();
  if (thread != 0) return;
  SquareSums sums;
  for (int w = 0; w < threads / 32; ++w) {
    sums.value += shared.value[w];
    sums.change += shared.change[w];
    sums.error += shared.error[w];
    sums.refused_groups += shared.refused_groups[w];
  }
  *row = sums;
  *finished = 0;  // for the next message
}

}  // namespace strait::kernels

#pragma once

#include "kernels/octets.cuh"

// What the lanes of a group compute together: its largest value, rotation and sums.
namespace strait::kernels {

// The bits of the group's largest size as an integer, so that NaN is the largest.
__device__ inline std::uint32_t largest_bits(const Octet& octet, int group) {
  std::uint32_t largest = 0;
  for (int i = 0; i < kOctet; ++i) {
    largest = max(largest, bits_of_float(octet.value[i]) & kSizeBits);
  }
  for (int stride = 1; stride < group / kOctet; stride *= 2) {
    largest = max(largest, __shfl_xor_sync(kAllLanes, largest, stride));
  }
  return largest;
}

__device__ inline int largest_of_warp(int value) {
  return over_warp(value, [](int left, int right) { return max(left, right); });
}

// Fast Hadamard transform of every group, strides 1, 2, 4, …, then times `factor`.
__device__ inline void turn(Octet& octet, int group, float factor) {
#pragma unroll
  for (int stride = 1; stride < kOctet; stride *= 2) {
#pragma unroll
    for (int i = 0; i < kOctet; ++i) {
      if ((i & stride) != 0) continue;
      const float left = octet.value[i];
      const float right = octet.value[i + stride];
      octet.value[i] = __fadd_rn(left, right);
      octet.value[i + stride] = __fsub_rn(left, right);
    }
  }
  for (int stride = 1; stride < group / kOctet; stride *= 2) {
    const bool upper = (lane_id() & stride) != 0;
#pragma unroll
    for (int i = 0; i < kOctet; ++i) {
      const float mine = octet.value[i];
      const float other = __shfl_xor_sync(kAllLanes, mine, stride);
      octet.value[i] = upper ? __fsub_rn(other, mine) : __fadd_rn(mine, other);
    }
  }
#pragma unroll
  for (int i = 0; i < kOctet; ++i) octet.value[i] = __fmul_rn(octet.value[i], factor);
}

// The sum over a group in the order of total_of (lengths-inl.h): 16 columns from first to last
// value, then halves of the columns. A column has kSteps values, two lanes apart. First the lanes
// exchange values until each has whole columns, so that kSteps adjacent values are a column.
template <int kSteps>
__device__ inline float column_sum(Octet octet) {
  float* const value = octet.value;
#pragma unroll
  for (int bit = 1; bit < kSteps; bit *= 2) {
    const bool upper = (lane_id() & (2 * bit)) != 0;
#pragma unroll
    for (int i = 0; i < kOctet; ++i) {
      if ((i & bit) != 0) continue;
      const float sent = upper ? value[i] : value[i + bit];
      const float received = __shfl_xor_sync(kAllLanes, sent, 2 * bit);
      value[i] = upper ? received : value[i];
      value[i + bit] = upper ? value[i + bit] : received;
    }
  }
  constexpr int columns = kOctet / kSteps;
  float sums[columns];
#pragma unroll
  for (int c = 0; c < columns; ++c) {
    sums[c] = 0.0F;
#pragma unroll
    for (int s = 0; s < kSteps; ++s) sums[c] = __fadd_rn(sums[c], value[c * kSteps + s]);
    // The columns from 8 on are in the adjacent lane. A sum of two is the same from both sides.
    sums[c] = __fadd_rn(sums[c], __shfl_xor_sync(kAllLanes, sums[c], 1));
  }
#pragma unroll
  for (int half = 4; half > 0; half /= 2) {
    if (half >= kSteps) {
#pragma unroll
      for (int c = 0; c < half / kSteps; ++c) sums[c] = __fadd_rn(sums[c], sums[c + half / kSteps]);
    } else {
      sums[0] = __fadd_rn(sums[0], __shfl_xor_sync(kAllLanes, sums[0], 2 * half));
    }
  }
  return sums[0];
}

__device__ inline float group_sum(const Octet& octet, int group) {
  if (group == 32) return column_sum<2>(octet);
  return group == 64 ? column_sum<4>(octet) : column_sum<8>(octet);
}

}  // namespace strait::kernels

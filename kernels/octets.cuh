#pragma once

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "kernels/group_rules.h"

// A thread has 8 adjacent values of a token: an octet, which is one byte of every bit plane.
// Adjacent lanes have adjacent octets: 4, 8 or 16 lanes are a group, and a warp is 256 values.
// Lanes after the end of a token have zeros. Every lane of a warp takes part in every exchange.
namespace strait::kernels {

constexpr int kOctet = 8;
constexpr unsigned kAllLanes = 0xFFFFFFFFU;

struct Octet {
  float value[kOctet];
};

__device__ inline int lane_id() { return static_cast<int>(threadIdx.x % 32); }

// Reduces a value of each lane, in halves; every lane gets the result. For whole warps.
template <class Value, class Operation>
__device__ inline Value over_warp(Value value, const Operation& operation) {
  for (int stride = 16; stride > 0; stride /= 2) {
    value = operation(value, __shfl_xor_sync(kAllLanes, value, stride));
  }
  return value;
}

__device__ inline bool is_aligned(const void* address) {
  return reinterpret_cast<std::uintptr_t>(address) % sizeof(uint4) == 0;
}

__device__ inline std::uint16_t bfloat16_bits(float value) {
  const std::uint32_t bits = bits_of_float(value);
  return static_cast<std::uint16_t>((bits + 0x7FFFU + ((bits >> 16U) & 1U)) >> 16U);
}

// Loads eight 16-bit numbers from any address; those from `count` on are 0.
__device__ inline void load_halves(const std::uint8_t* from, int count, std::uint32_t* halves) {
  if (count == kOctet && is_aligned(from)) {
    const uint4 words = *reinterpret_cast<const uint4*>(from);
    const std::uint32_t word[4] = {words.x, words.y, words.z, words.w};
    for (int i = 0; i < kOctet; ++i) halves[i] = (word[i / 2] >> (16 * (i % 2))) & 0xFFFFU;
    return;
  }
  for (int i = 0; i < kOctet; ++i) {
    halves[i] = i < count ? from[2 * i] | static_cast<std::uint32_t>(from[2 * i + 1]) << 8U : 0U;
  }
}

__device__ inline void store_halves(const std::uint32_t* halves, int count, std::uint8_t* to) {
  if (count == kOctet && is_aligned(to)) {
    *reinterpret_cast<uint4*>(to) =
        make_uint4(halves[0] | halves[1] << 16U, halves[2] | halves[3] << 16U,
                   halves[4] | halves[5] << 16U, halves[6] | halves[7] << 16U);
    return;
  }
  // Loop bounds known to the compiler keep octets in registers.
#pragma unroll
  for (int i = 0; i < kOctet; ++i) {
    if (i >= count) continue;
    to[2 * i] = static_cast<std::uint8_t>(halves[i]);
    to[2 * i + 1] = static_cast<std::uint8_t>(halves[i] >> 8U);
  }
}

// Loads `count` elements of an octet, from the address of the first one.
__device__ inline Octet load_elements(const std::uint8_t* from, Element element, int count) {
  Octet octet;
  if (element != Element::float32) {
    std::uint32_t halves[kOctet];
    load_halves(from, count, halves);
    for (int i = 0; i < kOctet; ++i) {
      octet.value[i] = element == Element::bfloat16
                           ? float_of_bits(halves[i] << 16U)
                           : __half2float(__ushort_as_half(static_cast<unsigned short>(halves[i])));
    }
  } else if (count == kOctet && is_aligned(from)) {
    const float4 low = reinterpret_cast<const float4*>(from)[0];
    const float4 high = reinterpret_cast<const float4*>(from)[1];
    octet = {{low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w}};
  } else {
    const auto* const floats = reinterpret_cast<const float*>(from);
    for (int i = 0; i < kOctet; ++i) octet.value[i] = i < count ? floats[i] : 0.0F;
  }
  return octet;
}

// Converts to half, with saturation.
__device__ inline std::uint32_t half_bits(float value) {
  return __half_as_ushort(__float2half_rn(fminf(fmaxf(value, -65504.0F), 65504.0F)));
}

// `refused`: stores NaN instead.
__device__ inline void store_elements(const Octet& octet, bool refused, Element element, int count,
                                      std::uint8_t* to) {
  if (element != Element::float32) {
    std::uint32_t halves[kOctet];
    for (int i = 0; i < kOctet; ++i) {
      if (element == Element::bfloat16) {
        halves[i] = refused ? 0x7FC0U : bfloat16_bits(octet.value[i]);
      } else {
        halves[i] = refused ? 0x7E00U : half_bits(octet.value[i]);
      }
    }
    return store_halves(halves, count, to);
  }
  Octet out = octet;
  for (int i = 0; i < kOctet && refused; ++i) out.value[i] = float_of_bits(0x7FC00000);
  const float* const v = out.value;
  if (count == kOctet && is_aligned(to)) {
    reinterpret_cast<float4*>(to)[0] = make_float4(v[0], v[1], v[2], v[3]);
    reinterpret_cast<float4*>(to)[1] = make_float4(v[4], v[5], v[6], v[7]);
    return;
  }
#pragma unroll
  for (int i = 0; i < kOctet; ++i) {
    if (i < count) reinterpret_cast<float*>(to)[i] = v[i];
  }
}

// Transposes the bits of eight bytes: bit i of byte b of the result is bit b of byte i. `low` has
// bytes 0 to 3.
__device__ inline void transpose_bits(std::uint32_t& low, std::uint32_t& high) {
  for (std::uint32_t* const half : {&low, &high}) {
    std::uint32_t swapped = (*half ^ (*half >> 7U)) & 0x00AA00AAU;
    *half ^= swapped ^ (swapped << 7U);
    swapped = (*half ^ (*half >> 14U)) & 0x0000CCCCU;
    *half ^= swapped ^ (swapped << 14U);
  }
  const std::uint32_t lower = (low & 0x0F0F0F0FU) | (high & 0x0F0F0F0FU) << 4U;
  high = ((low >> 4U) & 0x0F0F0F0FU) | (high & 0xF0F0F0F0U);
  low = lower;
}

}  // namespace strait::kernels

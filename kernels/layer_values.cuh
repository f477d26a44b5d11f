#pragma once

#include <stdexcept>
#include <string>
#include <type_traits>

#include "kernels/octets.cuh"
#include "kernels/row_launch.cuh"

// Shared by the kernels of layers. A thread works on octets of a row; rows with few octets share a
// block.
namespace strait::kernels {

// Rounds as libtorch does: NaN stays NaN.
template <Element element>
__device__ inline float rounded(float value) {
  if constexpr (element == Element::float32) return value;
  if (value != value) return float_of_bits(0x7FC00000U);
  return float_of_bits(static_cast<std::uint32_t>(bfloat16_bits(value)) << 16U);
}

// Stores eight rounded values at a multiple of 16 bytes, or the first `count` of them at any
// address.
template <Element element>
__device__ inline void store_rounded(const Octet& octet, int count, std::uint8_t* to) {
  if constexpr (element == Element::float32) {
    store_elements(octet, false, element, count, to);
  } else {
    std::uint32_t halves[kOctet];
    for (int i = 0; i < kOctet; ++i) halves[i] = bits_of_float(octet.value[i]) >> 16U;
    store_halves(halves, count, to);
  }
}

// Calls launch(element) with the element as a constant.
template <class Launch>
void with_element(Element element, const Launch& launch) {
  if (element == Element::float32) {
    launch(std::integral_constant<Element, Element::float32>{});
  } else if (element == Element::bfloat16) {
    launch(std::integral_constant<Element, Element::bfloat16>{});
  } else {
    throw std::logic_error("layers have kernels for float32 and bfloat16");
  }
}

// How rows are divided into blocks: x counts the threads of a row, y rows.
struct LayerCut {
  unsigned threads = 32;
  unsigned rows = 1;
  int octets = 1;  // per thread, at most
};
inline LayerCut cut_of_width(std::int64_t width) {
  const std::int64_t octets = (width + kOctet - 1) / kOctet;
  const unsigned threads = 32 * warps_of(width);
  return {threads, slots_of(width), static_cast<int>((octets + threads - 1) / threads)};
}

// A thread's number has 32 bits.
inline dim3 grid_of_threads(std::int64_t threads, unsigned of_block) {
  const std::int64_t blocks = (threads + of_block - 1) / of_block;
  if (blocks * of_block > 0xFFFFFFFF) {
    throw std::runtime_error("a tensor of " + std::to_string(threads * kOctet) +
                             " values is too large for one launch");
  }
  return dim3(static_cast<unsigned>(blocks));
}

// Reduces the values of a row over its threads, in the same order for every row of that width.
// `shared` has an element per warp of the block. Called by the whole block.
template <class Operation>
__device__ inline float over_row(float mine, float* shared, const Operation& operation) {
  mine = over_warp(mine, operation);
  const unsigned warps = blockDim.x / 32;
  float* const of_row = shared + threadIdx.y * warps;
  if (lane_id() == 0) of_row[threadIdx.x / 32] = mine;
  __syncthreads();
  float result = of_row[0];
  for (unsigned w = 1; w < warps; ++w) result = operation(result, of_row[w]);
  return result;
}

struct Add {
  __device__ float operator()(float left, float right) const { return left + right; }
};
struct Larger {
  __device__ float operator()(float left, float right) const { return fmaxf(left, right); }
};

}  // namespace strait::kernels

#include "kernels/gpu_layers.h"
#include "kernels/layer_values.cuh"

namespace strait::kernels::cuda {
namespace {

constexpr unsigned kThreads = 256;

struct Activated {
  float value;
  float slope;
};

// The formulas of libtorch's kernels.
__device__ inline Activated silu(float x) {
  const float sigmoid = 1.0F / (1.0F + expf(-x));
  return {x / (1.0F + expf(-x)), sigmoid * (1.0F + x * (1.0F - sigmoid))};
}

__device__ inline Activated gelu_tanh(float x) {
  constexpr float kFactor = 0.7978845608028654F;  // √(2/π)
  constexpr float kCubic = 0.044715F;
  const float tangent = tanhf(kFactor * (x + kCubic * (x * x * x)));
  const float half = 0.5F * x;
  const float inner = kFactor * (1.0F + 3.0F * kCubic * (x * x));
  return {half * (1.0F + tangent),
          0.5F * (1.0F + tangent) + half * (1.0F - tangent * tangent) * inner};
}

__device__ inline Activated gelu_erf(float x) {
  const float cumulative = 0.5F * (1.0F + erff(x * 0.7071067811865476F));
  const float density = 0.3989422804014327F * expf(-0.5F * x * x);
  return {x * cumulative, cumulative + x * density};
}

// NaN stays NaN.
__device__ inline Activated relu(float x) {
  return {x <= 0.0F ? 0.0F : x, x <= 0.0F ? 0.0F : 1.0F};
}

__device__ inline Activated activated(Activation activation, float x) {
  switch (activation) {
    case Activation::gelu_erf:
      return gelu_erf(x);
    case Activation::gelu_tanh:
      return gelu_tanh(x);
    case Activation::relu:
      return relu(x);
    default:
      return silu(x);
  }
}

// The octet of a thread. False: it has none.
struct Place {
  std::int64_t row;
  std::int64_t column;
};
__device__ inline bool find_place(const GatedShape& shape, Place& place) {
  const auto of_row = static_cast<std::uint32_t>(shape.width / kOctet);
  const std::uint32_t octet = blockIdx.x * kThreads + threadIdx.x;
  place = {octet / of_row, static_cast<std::int64_t>(octet % of_row) * kOctet};
  return place.row < shape.rows;
}

template <Element element>
__device__ inline std::int64_t offset(const Place& place, std::int64_t stride) {
  return (place.row * stride + place.column) * bytes_of(element);
}

template <Element element>
__global__ void __launch_bounds__(kThreads)
    multiply_gated(const __grid_constant__ GatedShape shape, const std::uint8_t* gate,
                   const std::uint8_t* up, std::uint8_t* product) {
  Place place{};
  if (!find_place(shape, place)) return;
  const std::int64_t at = offset<element>(place, shape.stride);
  Octet result = load_elements(gate + at, element, kOctet);
  const Octet factor = load_elements(up + at, element, kOctet);
  for (int i = 0; i < kOctet; ++i) {
    const float active = rounded<element>(activated(shape.activation, result.value[i]).value);
    result.value[i] = rounded<element>(active * factor.value[i]);
  }
  store_rounded<element>(result, kOctet, product + offset<element>(place, shape.width));
}

template <Element element>
__global__ void __launch_bounds__(kThreads)
    gated_gradient(const __grid_constant__ GatedShape shape, const std::uint8_t* gate,
                   const std::uint8_t* up, const std::uint8_t* slope, std::uint8_t* gate_gradient,
                   std::uint8_t* up_gradient) {
  Place place{};
  if (!find_place(shape, place)) return;
  const std::int64_t at = offset<element>(place, shape.stride);
  Octet into_gate = load_elements(gate + at, element, kOctet);
  Octet into_up = load_elements(up + at, element, kOctet);
  const Octet slopes = load_elements(slope + offset<element>(place, shape.width), element, kOctet);
  for (int i = 0; i < kOctet; ++i) {
    const Activated active = activated(shape.activation, into_gate.value[i]);
    const float into_active = rounded<element>(slopes.value[i] * into_up.value[i]);
    into_up.value[i] = rounded<element>(slopes.value[i] * rounded<element>(active.value));
    into_gate.value[i] = rounded<element>(into_active * active.slope);
  }
  store_rounded<element>(into_gate, kOctet, gate_gradient + at);
  store_rounded<element>(into_up, kOctet, up_gradient + at);
}

dim3 grid_of(const GatedShape& shape) {
  return grid_of_threads(shape.rows * (shape.width / kOctet), kThreads);
}

}  // namespace

void gated_product(void* stream, const GatedShape& shape, const void* gate, const void* up,
                   void* product) {
  if (shape.rows == 0) return;
  with_element(shape.element, [&](auto element) {
    STRAIT_LAUNCH(multiply_gated<element.value>, grid_of(shape), dim3(kThreads), 0,
                  static_cast<cudaStream_t>(stream))
    (shape, static_cast<const std::uint8_t*>(gate), static_cast<const std::uint8_t*>(up),
     static_cast<std::uint8_t*>(product));
  });
  check_cuda(cudaGetLastError(), "gated_product");
}

void gated_product_gradient(void* stream, const GatedShape& shape, const void* gate, const void* up,
                            const void* slope, void* gate_gradient, void* up_gradient) {
  if (shape.rows == 0) return;
  with_element(shape.element, [&](auto element) {
    STRAIT_LAUNCH(gated_gradient<element.value>, grid_of(shape), dim3(kThreads), 0,
                  static_cast<cudaStream_t>(stream))
    (shape, static_cast<const std::uint8_t*>(gate), static_cast<const std::uint8_t*>(up),
     static_cast<const std::uint8_t*>(slope), static_cast<std::uint8_t*>(gate_gradient),
     static_cast<std::uint8_t*>(up_gradient));
  });
  check_cuda(cudaGetLastError(), "gated_product_gradient");
}

}  // namespace strait::kernels::cuda

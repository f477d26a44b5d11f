#include <algorithm>
#include <type_traits>

#include "kernels/gpu_layers.h"
#include "kernels/layer_values.cuh"

namespace strait::kernels::cuda {
namespace {

constexpr unsigned kMostThreads = 32 * kMostWarps;

// A row in registers: one octet per thread, then the next one of each thread.
template <Element element, int kOctets>
class RowOctets {
 public:
  __device__ explicit RowOctets(std::int64_t width) : width_(static_cast<int>(width)) {}

  __device__ int count(int k) const { return max(0, min(kOctet, width_ - kOctet * octet(k))); }
  // Zeros after the end of the row.
  __device__ Octet load(const std::uint8_t* row, int k) const {
    if (count(k) == 0) return Octet{};
    return load_elements(row + offset(k), element, count(k));
  }
  __device__ void store(const Octet& octet, std::uint8_t* row, int k) const {
    if (count(k) > 0) store_rounded<element>(octet, count(k), row + offset(k));
  }
  __device__ std::int64_t offset(int k) const {
    return static_cast<std::int64_t>(octet(k)) * kOctet * bytes_of(element);
  }

 private:
  __device__ int octet(int k) const {
    return static_cast<int>(threadIdx.x) + k * static_cast<int>(blockDim.x);
  }

  int width_;
};

__device__ inline float factor_of(float weight, bool one_plus_weight) {
  return one_plus_weight ? weight + 1.0F : weight;
}

template <Element element, int kOctets>
__global__ void __launch_bounds__(kMostThreads)
    normalise(const __grid_constant__ NormShape shape, const std::uint8_t* input,
              const std::uint8_t* weight, float* scales, std::uint8_t* output) {
  STRAIT_SHARED_MEMORY(memory);
  const RowOctets<element, kOctets> octets(shape.width);
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  const bool here = row < shape.rows;
  const std::int64_t begin = row * shape.width * bytes_of(element);
  Octet values[kOctets];
  float squares = 0.0F;
#pragma unroll
  for (int k = 0; k < kOctets; ++k) {
    values[k] = here ? octets.load(input + begin, k) : Octet{};
    for (const float value : values[k].value) squares += value * value;
  }
  const float sum = over_row(squares, reinterpret_cast<float*>(memory), Add{});
  if (!here) return;
  const float scale = 1.0F / sqrtf(sum / static_cast<float>(shape.width) + shape.epsilon);
  if (threadIdx.x == 0) scales[row] = scale;
#pragma unroll
  for (int k = 0; k < kOctets; ++k) {
    const Octet factor = octets.load(weight, k);
    Octet& result = values[k];
    for (int i = 0; i < kOctet; ++i) {
      float normal = result.value[i] * scale;
      if (!shape.one_plus_weight) normal = rounded<element>(normal);
      result.value[i] =
          rounded<element>(normal * factor_of(factor.value[i], shape.one_plus_weight));
    }
    octets.store(result, output + begin, k);
  }
}

// Each block takes rows at a stride of the number of blocks, and sums their contributions to the
// weight's gradient.
template <Element element, int kOctets>
__global__ void __launch_bounds__(kMostThreads)
    norm_gradient(const __grid_constant__ NormShape shape, const std::uint8_t* input,
                  const std::uint8_t* weight, const float* scales, const std::uint8_t* slope,
                  std::uint8_t* input_gradient, float* weight_sums) {
  STRAIT_SHARED_MEMORY(memory);
  const RowOctets<element, kOctets> octets(shape.width);
  Octet sums[kOctets] = {};
  // Two buffers for sums, used in turn: those of one row may still be read when the next ones are
  // written.
  auto* shared = reinterpret_cast<float*>(memory);
  const auto places = static_cast<std::ptrdiff_t>(blockDim.x / 32 * blockDim.y);
  std::ptrdiff_t next = places;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.y;
  for (std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * blockDim.y; first < shape.rows;
       first += step) {
    const std::int64_t row = first + threadIdx.y;
    const bool here = row < shape.rows;
    const std::int64_t begin = row * shape.width * bytes_of(element);
    const float scale = here ? scales[row] : 0.0F;
    Octet normal[kOctets];
    Octet into[kOctets];
    float along = 0.0F;
#pragma unroll
    for (int k = 0; k < kOctets; ++k) {
      normal[k] = here ? octets.load(input + begin, k) : Octet{};
      into[k] = here ? octets.load(slope + begin, k) : Octet{};
      const Octet factor = octets.load(weight, k);
      for (int i = 0; i < kOctet; ++i) {
        normal[k].value[i] *= scale;
        sums[k].value[i] += into[k].value[i] * normal[k].value[i];
        into[k].value[i] *= factor_of(factor.value[i], shape.one_plus_weight);
        along += into[k].value[i] * normal[k].value[i];
      }
    }
    const float mean = over_row(along, shared, Add{}) / static_cast<float>(shape.width);
    shared += next;
    next = -next;
    if (!here) continue;
#pragma unroll
    for (int k = 0; k < kOctets; ++k) {
      for (int i = 0; i < kOctet; ++i) {
        const float across = into[k].value[i] - normal[k].value[i] * mean;
        into[k].value[i] = rounded<element>(across * scale);
      }
      octets.store(into[k], input_gradient + begin, k);
    }
  }
  if (weight_sums == nullptr) return;
  const RowOctets<Element::float32, kOctets> wide(shape.width);
  const std::int64_t place = static_cast<std::int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  auto* const to = reinterpret_cast<std::uint8_t*>(weight_sums + place * shape.width);
#pragma unroll
  for (int k = 0; k < kOctets; ++k) wide.store(sums[k], to, k);
}

// The number of blocks decides which rows are added first, so it must not depend on the GPU.
constexpr std::int64_t kGradientBlocks = 264;

unsigned blocks_of_rows(const NormShape& shape) {
  const std::int64_t rows = cut_of_width(shape.width).rows;
  return static_cast<unsigned>((shape.rows + rows - 1) / rows);
}
unsigned gradient_blocks(const NormShape& shape) {
  return static_cast<unsigned>(std::min<std::int64_t>(blocks_of_rows(shape), kGradientBlocks));
}

// Calls launch(element, octets of a thread), as constants.
template <class Launch>
void with_constants(const NormShape& shape, const Launch& launch) {
  const int octets = cut_of_width(shape.width).octets;
  with_element(shape.element, [&](auto element) {
    if (octets <= 1) return launch(element, std::integral_constant<int, 1>{});
    if (octets == 2) return launch(element, std::integral_constant<int, 2>{});
    launch(element, std::integral_constant<int, 4>{});
  });
}

int shared_bytes(const LayerCut& cut) {
  return static_cast<int>(cut.threads / 32 * cut.rows * sizeof(float));
}

}  // namespace

void rms_norm(void* stream, const NormShape& shape, const void* input, const void* weight,
              float* scales, void* output) {
  if (shape.rows == 0) return;
  const LayerCut cut = cut_of_width(shape.width);
  with_constants(shape, [&](auto element, auto octets) {
    STRAIT_LAUNCH((normalise<element.value, octets.value>), dim3(blocks_of_rows(shape)),
                  dim3(cut.threads, cut.rows), shared_bytes(cut), static_cast<cudaStream_t>(stream))
    (shape, static_cast<const std::uint8_t*>(input), static_cast<const std::uint8_t*>(weight),
     scales, static_cast<std::uint8_t*>(output));
  });
  check_cuda(cudaGetLastError(), "rms_norm");
}

std::int64_t norm_sum_rows(const NormShape& shape) {
  return static_cast<std::int64_t>(gradient_blocks(shape)) * cut_of_width(shape.width).rows;
}

void rms_norm_gradient(void* stream, const NormShape& shape, const void* input, const void* weight,
                       const float* scales, const void* slope, void* input_gradient,
                       float* weight_sums) {
  if (shape.rows == 0) return;
  const LayerCut cut = cut_of_width(shape.width);
  with_constants(shape, [&](auto element, auto octets) {
    STRAIT_LAUNCH((norm_gradient<element.value, octets.value>), dim3(gradient_blocks(shape)),
                  dim3(cut.threads, cut.rows), 2 * shared_bytes(cut),
                  static_cast<cudaStream_t>(stream))
    (shape, static_cast<const std::uint8_t*>(input), static_cast<const std::uint8_t*>(weight),
     scales, static_cast<const std::uint8_t*>(slope), static_cast<std::uint8_t*>(input_gradient),
     weight_sums);
  });
  check_cuda(cudaGetLastError(), "rms_norm_gradient");
}

}  // namespace strait::kernels::cuda

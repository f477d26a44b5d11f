#include "kernels/gpu_layers.h"
#include "kernels/layer_values.cuh"

namespace strait::kernels::cuda {
namespace {

constexpr unsigned kThreads = 512;

// Octets of a row that start at multiples of 16 bytes, wherever the row starts. The first and the
// last one may contain values of other rows, which are not changed.
template <Element element>
class LogitRow {
 public:
  __device__ LogitRow(const LogitShape& shape, const std::uint8_t* logits, std::int64_t row)
      : at_(row * shape.vocabulary * bytes_of(element)),
        vocabulary_(static_cast<int>(shape.vocabulary)),
        before_(static_cast<int>(reinterpret_cast<std::uintptr_t>(logits + at_) % kBytes /
                                 bytes_of(element))) {}

  __device__ int octets() const { return (before_ + vocabulary_ + kOctet - 1) / kOctet; }
  // The position of an octet's first value; it may be before the row.
  __device__ int first(int octet) const { return octet * kOctet - before_; }
  __device__ bool is_whole(int first) const { return first >= 0 && first + kOctet <= vocabulary_; }
  __device__ bool has(int value) const { return value >= 0 && value < vocabulary_; }
  __device__ std::int64_t offset(int value) const {
    return at_ + static_cast<std::int64_t>(value) * bytes_of(element);
  }

 private:
  static constexpr std::uintptr_t kBytes = kOctet * bytes_of(element);

  std::int64_t at_;
  int vocabulary_;
  int before_;
};

// Values outside the row count as minus infinity: e to the power of that is 0.
template <Element element>
__device__ inline Octet load_logits(const LogitRow<element>& row, const std::uint8_t* logits,
                                    int first) {
  if (row.is_whole(first)) return load_elements(logits + row.offset(first), element, kOctet);
  Octet octet;
  for (int i = 0; i < kOctet; ++i) {
    octet.value[i] = row.has(first + i)
                         ? load_elements(logits + row.offset(first + i), element, 1).value[0]
                         : -INFINITY;
  }
  return octet;
}

// The sum of exp(logit - largest), in one pass.
struct Exponents {
  float largest = -INFINITY;
  float sum = 0.0F;

  __device__ void add(const Octet& octet) {
    float top = largest;
    for (const float value : octet.value) top = fmaxf(top, value);
    // If all values are -INFINITY, or NaN, which fmaxf ignores.
    const float base = top == -INFINITY ? 0.0F : top;
    float more = 0.0F;
    for (const float value : octet.value) more += expf(value - base);
    sum = sum * expf(largest - base) + more;
    largest = top;
  }
};

template <Element element>
__global__ void __launch_bounds__(kThreads)
    consume_logits(const __grid_constant__ LogitShape shape, const std::uint8_t* logits,
                   const std::int64_t* targets, float* log_probabilities, std::uint8_t* slopes) {
  STRAIT_SHARED_MEMORY(memory);
  auto* const shared = reinterpret_cast<float*>(memory);
  const LogitRow<element> row(shape, logits, blockIdx.x);
  const int target = static_cast<int>(targets[blockIdx.x]);
  const float chosen = load_elements(logits + row.offset(target), element, 1).value[0];
  Exponents own;
  for (int k = static_cast<int>(threadIdx.x); k < row.octets(); k += kThreads) {
    own.add(load_logits(row, logits, row.first(k)));
  }
  // NaN is never the largest value, but makes the sum NaN. A thread with no other values has NaN or
  // zero.
  const float largest = over_row(own.largest, shared, Larger{});
  const float share = own.largest == -INFINITY ? own.sum : own.sum * expf(own.largest - largest);
  const float sum = over_row(share, shared + kThreads / 32, Add{});
  const float logarithm = logf(sum);
  if (threadIdx.x == 0) log_probabilities[blockIdx.x] = chosen - largest - logarithm;
  if (slopes == nullptr) return;
  // After the barriers of the sums, when the target's logit has been read.
  for (int k = static_cast<int>(threadIdx.x); k < row.octets(); k += kThreads) {
    const int first = row.first(k);
    Octet octet = load_logits(row, logits, first);
    for (int i = 0; i < kOctet; ++i) {
      const float probability = expf(octet.value[i] - largest - logarithm);
      octet.value[i] = rounded<element>(first + i == target ? probability - 1.0F : probability);
    }
    if (row.is_whole(first)) {
      store_rounded<element>(octet, kOctet, slopes + row.offset(first));
      continue;
    }
    for (int i = 0; i < kOctet; ++i) {
      if (!row.has(first + i)) continue;
      store_rounded<element>(Octet{{octet.value[i]}}, 1, slopes + row.offset(first + i));
    }
  }
}

}  // namespace

void cross_entropy(void* stream, const LogitShape& shape, const void* logits,
                   const std::int64_t* targets, float* log_probabilities, void* slopes) {
  if (shape.rows == 0) return;
  with_element(shape.element, [&](auto element) {
    STRAIT_LAUNCH(consume_logits<element.value>, dim3(static_cast<unsigned>(shape.rows)),
                  dim3(kThreads), static_cast<int>(2 * kThreads / 32 * sizeof(float)),
                  static_cast<cudaStream_t>(stream))
    (shape, static_cast<const std::uint8_t*>(logits), targets, log_probabilities,
     static_cast<std::uint8_t*>(slopes));
  });
  check_cuda(cudaGetLastError(), "cross_entropy");
}

}  // namespace strait::kernels::cuda

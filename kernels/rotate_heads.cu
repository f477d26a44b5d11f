#include "kernels/gpu_layers.h"
#include "kernels/layer_values.cuh"

namespace strait::kernels::cuda {
namespace {

constexpr unsigned kThreads = 256;

// Eight pairs, as two octets of a head: `first` and `second` values of all pairs, or adjacent ones.
__device__ inline void exchange_neighbours(Octet& first, Octet& second) {
  const Octet low = first;
  const Octet high = second;
  for (int i = 0; i < kOctet; ++i) {
    const Octet& from = i < kOctet / 2 ? low : high;
    const int at = 2 * (i % (kOctet / 2));
    first.value[i] = from.value[at];
    second.value[i] = from.value[at + 1];
  }
}
__device__ inline void restore_neighbours(Octet& first, Octet& second) {
  const Octet even = first;
  const Octet odd = second;
  for (int i = 0; i < kOctet; ++i) {
    Octet& into = i < kOctet / 2 ? first : second;
    const int at = 2 * (i % (kOctet / 2));
    into.value[at] = even.value[i];
    into.value[at + 1] = odd.value[i];
  }
}

template <Element element>
__device__ inline void turn_pairs(Octet& first, Octet& second, const Octet& cosine,
                                  const Octet& sine, bool inverse) {
  for (int i = 0; i < kOctet; ++i) {
    const float a = first.value[i];
    const float b = second.value[i];
    const float across_a = rounded<element>(b * sine.value[i]);
    const float across_b = rounded<element>(a * sine.value[i]);
    const float along_a = rounded<element>(a * cosine.value[i]);
    const float along_b = rounded<element>(b * cosine.value[i]);
    first.value[i] = rounded<element>(inverse ? along_a + across_a : along_a - across_a);
    second.value[i] = rounded<element>(inverse ? along_b - across_b : along_b + across_b);
  }
}

// A thread has eight pairs of a head, or one of the octets that pass through.
template <Element element>
__global__ void __launch_bounds__(kThreads)
    rotate(const __grid_constant__ HeadShape shape, const std::uint8_t* heads,
           const std::uint8_t* cosine, const std::uint8_t* sine, std::uint8_t* rotated_heads) {
  constexpr std::int64_t kSize = bytes_of(element);
  const std::int64_t turned = shape.half / kOctet;
  const auto of_head = static_cast<std::uint32_t>(shape.width / kOctet - turned);
  const auto of_token = static_cast<std::uint32_t>(shape.heads);
  const std::uint32_t all = blockIdx.x * kThreads + threadIdx.x;
  const std::int64_t part = all % of_head;
  const std::int64_t head = all / of_head % of_token;
  const std::int64_t token = all / of_head / of_token;
  if (token >= shape.tokens) return;
  const std::uint8_t* const from =
      heads + (token * shape.token_stride + head * shape.head_stride) * kSize;
  std::uint8_t* const to = rotated_heads + (token * shape.heads + head) * shape.width * kSize;
  if (part >= turned) {
    const std::int64_t at = (part + turned) * kOctet * kSize;
    store_rounded<element>(load_elements(from + at, element, kOctet), kOctet, to + at);
    return;
  }
  const std::int64_t octet_bytes = kOctet * kSize;
  const std::int64_t first_at = (shape.neighbours ? 2 * part : part) * octet_bytes;
  const std::int64_t second_at = first_at + (shape.neighbours ? 1 : turned) * octet_bytes;
  const std::int64_t angle_at = (token * shape.half + part * kOctet) * kSize;
  Octet first = load_elements(from + first_at, element, kOctet);
  Octet second = load_elements(from + second_at, element, kOctet);
  if (shape.neighbours) exchange_neighbours(first, second);
  turn_pairs<element>(first, second, load_elements(cosine + angle_at, element, kOctet),
                      load_elements(sine + angle_at, element, kOctet), shape.inverse);
  if (shape.neighbours) restore_neighbours(first, second);
  store_rounded<element>(first, kOctet, to + first_at);
  store_rounded<element>(second, kOctet, to + second_at);
}

}  // namespace

void rotate_heads(void* stream, const HeadShape& shape, const void* heads, const void* cosine,
                  const void* sine, void* rotated) {
  const std::int64_t threads =
      shape.tokens * shape.heads * (shape.width / kOctet - shape.half / kOctet);
  if (threads == 0) return;
  with_element(shape.element, [&](auto element) {
    STRAIT_LAUNCH(rotate<element.value>, grid_of_threads(threads, kThreads), dim3(kThreads), 0,
                  static_cast<cudaStream_t>(stream))
    (shape, static_cast<const std::uint8_t*>(heads), static_cast<const std::uint8_t*>(cosine),
     static_cast<const std::uint8_t*>(sine), static_cast<std::uint8_t*>(rotated));
  });
  check_cuda(cudaGetLastError(), "rotate_heads");
}

}  // namespace strait::kernels::cuda

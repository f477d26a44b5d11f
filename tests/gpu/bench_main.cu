// How fast a GPU encodes and decodes a message, and computes what layers have kernels for, beside a
// copy within its memory: bytes read and written per second, as a share of the copy's.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <utility>
#include <vector>

#include "kernels/gpu_layers.h"
#include "kernels/processors.h"
#include "tests/gpu/gpu_memory.h"

namespace strait::kernels {
namespace {

constexpr std::size_t kRows = 8;

double seconds_of(const std::function<void()>& work) {
  constexpr int kWarmUp = 3;
  constexpr int kRounds = 20;
  cudaEvent_t begin = nullptr;
  cudaEvent_t end = nullptr;
  require(cudaEventCreate(&begin));
  require(cudaEventCreate(&end));
  for (int round = 0; round < kWarmUp; ++round) work();
  require(cudaEventRecord(begin));
  for (int round = 0; round < kRounds; ++round) work();
  require(cudaEventRecord(end));
  require(cudaEventSynchronize(end));
  float milliseconds = 0;
  require(cudaEventElapsedTime(&milliseconds, begin, end));
  require(cudaEventDestroy(begin));
  require(cudaEventDestroy(end));
  return std::max(milliseconds / 1e3 / kRounds, 1e-9);
}

// Fills the GPU's memory with values as activations are, over and over those at `first` and behind.
void fill_randomly(const GpuMemory& memory, Element element, std::size_t first) {
  static const std::vector<float> values = [] {
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    std::vector<float> made((1U << 20U) + 1003);  // shares no factor with a row
    for (float& value : made) value = normal(random);
    return made;
  }();
  std::vector<std::byte> block;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const float value = values[(first + i) % values.size()];
    std::byte bytes[sizeof(value)];
    std::memcpy(bytes, &value, sizeof(value));
    // bfloat16 is the upper half.
    const auto size = static_cast<std::size_t>(bytes_of(element));
    block.insert(block.end(), bytes + sizeof(value) - size, bytes + sizeof(value));
  }
  for (std::size_t at = 0; at < memory.size(); at += block.size()) {
    const std::size_t size = std::min(block.size(), memory.size() - at);
    require(cudaMemcpy(memory.at(at), block.data(), size, cudaMemcpyHostToDevice));
  }
}

// A message of eight rows, and what a call moves of it. Two sets of values take turns, so that a
// row always differs from its entry.
class BenchMessage {
 public:
  BenchMessage(std::int64_t tokens, const RowShape& shape, const GroupFormat& format, bool entries,
               bool pinned_payload)
      : shape_(shape),
        payload_(pinned_payload ? GpuMemory::Kind::pinned : GpuMemory::Kind::device) {
    const auto elements = static_cast<std::size_t>(tokens * shape.width);
    const std::size_t values = elements * static_cast<std::size_t>(bytes_of(shape.element));
    const auto payload = static_cast<std::size_t>(tokens * token_bytes(format, shape.width));
    const auto entry = static_cast<std::size_t>(entry_bytes(tokens, shape.width));
    for (GpuMemory* const turn : {&values_, &other_values_}) turn->reserve(kRows * values);
    payload_.reserve(kRows * payload);
    entries_.reserve(kRows * entry);
    sums_.reserve(kRows * sizeof(SquareSums));
    const std::int64_t scratch = sums_scratch_bytes(tokens * static_cast<std::int64_t>(kRows));
    scratch_.reserve(static_cast<std::size_t>(scratch));
    fill_randomly(values_, shape.element, 0);
    fill_randomly(other_values_, shape.element, 12345);
    require(cudaMemset(scratch_.data(), 0, scratch_.size()));
    for (std::size_t r = 0; r < kRows; ++r) {
      GpuRow row;
      row.values = values_.at(r * values);
      row.payload = payload_.at(r * payload);
      row.entry = entries ? entries_.at(r * entry) : nullptr;
      row.tokens = tokens;
      row.format = format;
      row.fresh = true;
      // As SampleEncoder draws: what has no entry is rounded without bias.
      row.draw = {entries ? Rounding::nearest : Rounding::unbiased, r};
      rows_.push_back(row);
      row.values = other_values_.at(r * values);
      row.fresh = false;
      other_rows_.push_back(row);
    }
    encode(false);  // which makes the entries, and gives the turn to the others
    for (GpuRow& row : other_rows_) row.fresh = false;
    moved_ = static_cast<double>(kRows * (values + payload + (entries ? 2 * entry : 0)));
  }

  void encode(bool with_sums) {
    auto* const sums = reinterpret_cast<SquareSums*>(sums_.data());
    cuda::encode_rows(nullptr, shape_, rows_, {with_sums ? sums : nullptr, scratch_.at(0)});
    std::swap(rows_, other_rows_);
  }
  void decode() const { cuda::decode_rows(nullptr, shape_, rows_); }
  double moved() const { return moved_; }

 private:
  RowShape shape_;
  std::vector<GpuRow> rows_;  // that are encoded next
  std::vector<GpuRow> other_rows_;
  GpuMemory values_{GpuMemory::Kind::device};
  GpuMemory other_values_{GpuMemory::Kind::device};
  GpuMemory payload_;
  GpuMemory entries_{GpuMemory::Kind::device};
  GpuMemory sums_{GpuMemory::Kind::pinned};
  GpuMemory scratch_{GpuMemory::Kind::device};
  double moved_ = 0;
};

double copied_per_second(std::size_t size) {
  GpuMemory from(GpuMemory::Kind::device);
  GpuMemory to(GpuMemory::Kind::device);
  from.reserve(size);
  to.reserve(size);
  require(cudaMemset(from.data(), 0x3B, size));
  const double seconds = seconds_of(
      [&] { require(cudaMemcpyAsync(to.data(), from.data(), size, cudaMemcpyDeviceToDevice)); });
  return 2.0 * static_cast<double>(size) / seconds;
}

void measure(std::int64_t tokens, std::int64_t width) {
  const double copy = copied_per_second(kRows * static_cast<std::size_t>(tokens * width) * 2);
  std::printf("%zu rows of %lld tokens, %lld wide; groups of 64; a copy moves %.0f GB/s\n", kRows,
              static_cast<long long>(tokens), static_cast<long long>(width), copy / 1e9);
  std::printf("%-9s %-10s %4s %-7s %-15s %9s %9s %9s\n", "values", "entry", "bits", "rotate",
              "payload", "encode", "and sums", "decode");
  for (const Element element : {Element::bfloat16, Element::float32}) {
    for (const bool entry : {false, true}) {
      for (const int bits : {4, 8}) {
        for (const int variant : {0, 1, 2}) {
          const bool rotate = variant == 1;
          const bool pinned = variant == 2;
          const RowShape shape{element, width};
          BenchMessage message(tokens, shape, {bits, 64, rotate}, entry, pinned);
          const auto share = [&](const std::function<void()>& work) {
            return 100 * message.moved() / seconds_of(work) / copy;
          };
          const double encode = share([&] { message.encode(false); });
          const double sums = share([&] { message.encode(true); });
          const double decode = share([&] { message.decode(); });
          std::printf("%-9s %-10s %4d %-7s %-15s %7.0f %% %7.0f %% %7.0f %%\n",
                      element == Element::bfloat16 ? "bfloat16" : "float32",
                      entry ? "bfloat16" : "-", bits, rotate ? "yes" : "no",
                      pinned ? "pinned" : "on the GPU", encode, sums, decode);
        }
      }
    }
  }
}

// Memory for the layers, in bfloat16: all of their tensors begin in it, one behind the other.
class BenchLayers {
 public:
  explicit BenchLayers(std::int64_t tokens) : tokens_(tokens) {
    values_.reserve(static_cast<std::size_t>(tokens * 6 * kInner * 2));
    sums_.reserve(static_cast<std::size_t>(1 << 26));
    targets_.reserve(static_cast<std::size_t>(tokens * 8));
    fill_randomly(values_, Element::bfloat16, 0);
    require(cudaMemset(targets_.data(), 0, targets_.size()));
  }

  void measure() {
    const double copy = copied_per_second(static_cast<std::size_t>(tokens_ * kInner) * 2);
    std::printf("layers of %lld tokens in bfloat16; a copy moves %.0f GB/s\n",
                static_cast<long long>(tokens_), copy / 1e9);
    const auto show = [&](const char* name, std::int64_t values,
                          const std::function<void()>& work) {
      const double seconds = seconds_of(work);
      std::printf("%-40s %7.1f us %7.0f %%\n", name, 1e6 * seconds,
                  100 * 2 * static_cast<double>(values) / seconds / copy);
    };
    const NormShape norm{Element::bfloat16, tokens_, kHidden, 1e-5F, false};
    auto* const sums = static_cast<float*>(sums_.data());
    float* const scales = sums + (1 << 23);
    const std::int64_t hidden = tokens_ * kHidden;
    show("RMS norm, 2048 wide", 2 * hidden,
         [&] { cuda::rms_norm(nullptr, norm, at(0), at(5 * hidden), scales, at(hidden)); });
    show("its gradients", 3 * hidden, [&] {
      cuda::rms_norm_gradient(nullptr, norm, at(0), at(5 * hidden), scales, at(hidden),
                              at(2 * hidden), sums);
    });
    const GatedShape gated{Element::bfloat16, Activation::silu, tokens_, kInner, kInner};
    const std::int64_t inner = tokens_ * kInner;
    show("gated product, 5632 wide", 3 * inner,
         [&] { cuda::gated_product(nullptr, gated, at(0), at(inner), at(2 * inner)); });
    show("its gradients", 5 * inner, [&] {
      cuda::gated_product_gradient(nullptr, gated, at(0), at(inner), at(2 * inner), at(3 * inner),
                                   at(4 * inner));
    });
    const HeadShape heads{Element::bfloat16, false, false, tokens_, 32, 64, 32, kHidden, 64};
    show("rotation of 32 heads", 2 * hidden + 64 * tokens_, [&] {
      cuda::rotate_heads(nullptr, heads, at(0), at(2 * hidden), at(3 * hidden), at(4 * hidden));
    });
    const LogitShape logits{Element::bfloat16, tokens_ / 8, 32000};
    show("cross entropy of 32,000 tokens", 3 * logits.rows * logits.vocabulary, [&] {
      cuda::cross_entropy(nullptr, logits, at(0), static_cast<const std::int64_t*>(targets_.data()),
                          scales, at(0));
    });
  }

 private:
  static constexpr std::int64_t kHidden = 2048;
  static constexpr std::int64_t kInner = 5632;

  void* at(std::int64_t value) const { return values_.at(static_cast<std::size_t>(value * 2)); }

  std::int64_t tokens_;
  GpuMemory values_{GpuMemory::Kind::device};
  GpuMemory sums_{GpuMemory::Kind::device};
  GpuMemory targets_{GpuMemory::Kind::device};
};

}  // namespace
}  // namespace strait::kernels

// Arguments: tokens of a row, width.
int main(int argc, char** argv) {
  const long tokens = argc > 1 ? std::strtol(argv[1], nullptr, 10) : 2048;
  const long width = argc > 2 ? std::strtol(argv[2], nullptr, 10) : 4096;
  if (tokens <= 0 || width <= 0) {
    std::printf("tokens and width are numbers above 0\n");
    return 2;
  }
  strait::kernels::measure(tokens, width);
  strait::kernels::BenchLayers(tokens).measure();
  return 0;
}

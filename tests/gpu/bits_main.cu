// Holds the CUDA kernels against the plain implementation, bit by bit, and times them.
#include <cuda_runtime.h>

#include <array>
#include <cstdio>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "kernels/processors.h"
#include "tests/kernels/plain_rows.h"
#include "tests/kernels/random_rows.h"

namespace strait::kernels {
namespace {

constexpr std::uint32_t kSeed = 20240612;

void require(cudaError_t error) {
  if (error == cudaSuccess) return;
  std::printf("CUDA: %s\n", cudaGetErrorString(error));
  std::exit(1);
}

// Memory on the GPU.
class Room {
 public:
  explicit Room(std::size_t size) : size_(size) { require(cudaMalloc(&data_, size)); }
  Room(const Room&) = delete;
  Room& operator=(const Room&) = delete;
  ~Room() { cudaFree(data_); }

  std::vector<std::byte> get() const {
    std::vector<std::byte> bytes(size_);
    require(cudaMemcpy(bytes.data(), data_, size_, cudaMemcpyDeviceToHost));
    return bytes;
  }
  void* data() const { return data_; }
  std::byte* bytes() const { return static_cast<std::byte*>(data_); }

 private:
  std::size_t size_;
  void* data_ = nullptr;
};

bool same(const std::vector<std::byte>& left, const void* right) {
  return std::memcmp(left.data(), right, left.size()) == 0;
}

struct Case {
  GroupFormat format;
  Draw draw;
  Element element;
  CacheFormat kind;
  Content content;
  std::int64_t tokens;
  std::int64_t width;
};

// Three visits, sent and received; then values and an entry as wholes. What differs first, or "".
std::string difference(const Case& one, std::mt19937& random) {
  const auto [format, draw, element, kind, content, tokens, width] = one;
  RandomRow row(tokens, width, element);
  RandomRow read(tokens, width, element);
  std::vector<std::byte> bytes(static_cast<std::size_t>(tokens * token_bytes(format, width)));
  std::vector<std::byte> sent(static_cast<std::size_t>(entry_bytes(kind, tokens, width)));
  std::vector<std::byte> received = sent;
  const Room gpu_row(row.size());
  const Room gpu_bytes(bytes.size());
  const Room gpu_sent(sent.size());
  const Room gpu_received(sent.size());
  const Values values{gpu_row.data(), element, tokens, width};
  const MutableValues out{gpu_row.data(), element, tokens, width};
  for (int visit = 0; visit < 3; ++visit) {
    row.fill(content, random);
    require(cudaMemcpy(gpu_row.data(), row.data(), row.size(), cudaMemcpyHostToDevice));
    SquareSums sums;
    SquareSums plain_sums;
    const bool fresh = visit == 0;
    cuda::quantize_change(nullptr, values, format, draw, kind, fresh, gpu_sent.bytes(),
                          gpu_bytes.bytes(), &sums);
    plain::quantize_change(row.values(), format, draw, kind, fresh, sent.data(), bytes.data(),
                           &plain_sums);
    if (!same(gpu_bytes.get(), bytes.data())) return "the bytes of a change";
    if (!same(gpu_sent.get(), sent.data())) return "the sender's entry";
    if (sums.refused_groups != plain_sums.refused_groups) return "the refused groups";
    cuda::apply_change(nullptr, gpu_bytes.bytes(), format, kind, fresh, gpu_received.bytes(), out);
    plain::apply_change(bytes.data(), format, kind, fresh, received.data(), read.output());
    if (!same(gpu_received.get(), received.data())) return "the receiver's entry";
    if (!same(gpu_row.get(), read.data())) return "what the receiver reads";
  }
  require(cudaMemcpy(gpu_row.data(), row.data(), row.size(), cudaMemcpyHostToDevice));
  cuda::store_entry(nullptr, values, kind, gpu_sent.bytes());
  plain::store_entry(row.values(), kind, sent.data());
  if (!same(gpu_sent.get(), sent.data())) return "a stored entry";
  cuda::quantize(nullptr, values, format, draw, gpu_bytes.bytes(), nullptr);
  plain::quantize(row.values(), format, draw, bytes.data(), nullptr);
  if (!same(gpu_bytes.get(), bytes.data())) return "the bytes of values";
  cuda::load_entry(nullptr, kind, gpu_sent.bytes(), out);
  plain::load_entry(kind, sent.data(), read.output());
  if (!same(gpu_row.get(), read.data())) return "a loaded entry";
  cuda::dequantize(nullptr, gpu_bytes.bytes(), format, out);
  plain::dequantize(bytes.data(), format, read.output());
  return same(gpu_row.get(), read.data()) ? "" : "values read";
}

int compare_bits() {
  constexpr std::array<std::int64_t, 8> kWidths{1, 31, 64, 100, 128, 333, 768, 1600};
  std::mt19937 random(kSeed);
  int cases = 0;
  for (int bits = 2; bits <= 8; ++bits) {
    for (const int group : {32, 64, 128}) {
      for (unsigned k = 0; k < 48; ++k, ++cases) {
        Case one{{bits, group, k % 2 != 0},
                 {k % 4 < 2 ? Rounding::nearest : Rounding::stochastic, random()},
                 static_cast<Element>(k % 3),
                 static_cast<CacheFormat>(random() % 2),
                 static_cast<Content>(random() % 3),
                 1 + static_cast<std::int64_t>(random() % 5),
                 kWidths[random() % kWidths.size()]};
        const std::string found = difference(one, random);
        if (found.empty()) continue;
        std::printf("%s: GPU and CPU differ (%d bits, groups of %d, case %u, %lld wide, seed %u)\n",
                    found.c_str(), bits, group, k, static_cast<long long>(one.width), kSeed);
        return 1;
      }
    }
  }
  std::printf("%d cases: GPU and CPU give the same bits\n", cases);
  return 0;
}

double seconds_of(const std::function<void()>& work) {
  constexpr int kRounds = 20;
  cudaEvent_t begin = nullptr;
  cudaEvent_t end = nullptr;
  require(cudaEventCreate(&begin));
  require(cudaEventCreate(&end));
  for (int round = 0; round < 3; ++round) work();
  require(cudaEventRecord(begin));
  for (int round = 0; round < kRounds; ++round) work();
  require(cudaEventRecord(end));
  require(cudaEventSynchronize(end));
  float milliseconds = 0;
  require(cudaEventElapsedTime(&milliseconds, begin, end));
  return milliseconds / 1e3 / kRounds;
}

void measure() {
  constexpr std::int64_t kTokens = 65536;
  constexpr std::int64_t kWidth = 2048;
  constexpr std::size_t kSize = kTokens * kWidth * 4;
  const GroupFormat format{4, 64, false};
  const Room row(kSize);
  const Room other(kSize);
  const Room entry(static_cast<std::size_t>(entry_bytes(CacheFormat::bfloat16, kTokens, kWidth)));
  const Room bytes(static_cast<std::size_t>(kTokens * token_bytes(format, kWidth)));
  require(cudaMemset(row.data(), 0x3B, kSize));
  require(cudaMemset(entry.data(), 0x3C, kSize / 2));
  const Values values{row.data(), Element::float32, kTokens, kWidth};
  const MutableValues out{other.data(), Element::float32, kTokens, kWidth};
  const double copy = seconds_of(
      [&] { require(cudaMemcpyAsync(other.data(), row.data(), kSize, cudaMemcpyDeviceToDevice)); });
  const auto print = [&](const char* what, double seconds) {
    std::printf("%-16s %8.1f GB/s of float32, %5.1f %% of a copy\n", what, kSize / seconds / 1e9,
                100 * copy / seconds);
  };
  print("copy", copy);
  constexpr auto kKind = CacheFormat::bfloat16;
  print("quantize",
        seconds_of([&] { cuda::quantize(nullptr, values, format, {}, bytes.bytes(), nullptr); }));
  print("dequantize", seconds_of([&] { cuda::dequantize(nullptr, bytes.bytes(), format, out); }));
  print("quantize_change", seconds_of([&] {
          cuda::quantize_change(nullptr, values, format, {}, kKind, false, entry.bytes(),
                                bytes.bytes(), nullptr);
        }));
  print("apply_change", seconds_of([&] {
          cuda::apply_change(nullptr, bytes.bytes(), format, kKind, false, entry.bytes(), out);
        }));
}

}  // namespace
}  // namespace strait::kernels

int main(int argc, char** argv) {
  const bool only_speed = argc > 1 && std::strcmp(argv[1], "speed") == 0;
  if (!only_speed && strait::kernels::compare_bits() != 0) return 1;
  strait::kernels::measure();
  return 0;
}

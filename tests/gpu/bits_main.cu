// Holds messages that the CUDA kernels encode and decode, and matrices in NF4 that they read,
// against the plain implementation, bit by bit: on a GPU, or in the emulation.
#include <cuda_runtime.h>

#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "kernels/nf4.h"
#include "kernels/processors.h"
#include "tests/gpu/gpu_memory.h"
#include "tests/kernels/plain_rows.h"
#include "tests/kernels/row_cases.h"

namespace strait::kernels {
namespace {

constexpr std::uint32_t kSeed = 20240612;
using Bytes = std::vector<std::byte>;

// A row on both sides: as the plain implementation has it, and where it lies on the GPU.
struct TestRow {
  GpuRow gpu;
  RandomRow values;
  RandomRow read;
  Bytes payload;
  Bytes sent;
  Bytes received;
  std::size_t values_at = 0;
  std::size_t payload_at = 0;
  std::size_t entry_at = 0;
};

// A message of some rows, with all memory that it needs. Rows have entries, fresh entries or none,
// and formats of their own; nothing is aligned to more than its element.
class TestMessage {
 public:
  TestMessage(const RowCase& one, std::mt19937& random, int rows) : one_(one) {
    std::size_t values = 16 * (random() % 2) + 4 * (random() % 3);
    std::size_t payload = random() % 17;
    std::size_t entry = random() % 3 == 0 ? random() % 17 : 0;
    for (int r = 0; r < rows; ++r) {
      TestRow row{{}, RandomRow(0, 1, one.element), RandomRow(0, 1, one.element), {}, {}, {}};
      GpuRow& gpu = row.gpu;
      gpu.tokens = r == 0 ? one.tokens : static_cast<std::int64_t>(random() % 6);
      gpu.format = one.format;
      // Others than the first may be cache misses, with another width of bits.
      if (r > 0 && random() % 2 == 0) gpu.format.bits = 2 + static_cast<int>(random() % 7);
      gpu.draw = {one.draw.rounding, one.draw.key + static_cast<std::uint64_t>(r)};
      row.values = row.read = RandomRow(gpu.tokens, one.width, one.element);
      row.payload.resize(static_cast<std::size_t>(gpu.tokens * token_bytes(gpu.format, one.width)));
      row.sent.resize(static_cast<std::size_t>(entry_bytes(gpu.tokens, one.width)));
      row.received = row.sent;
      row.values_at = values;
      row.payload_at = payload;
      row.entry_at = entry;
      values += row.values.size();
      payload += row.payload.size();
      entry += row.sent.size();
      tokens_ += gpu.tokens;
      has_entry_.push_back(r == 0 || random() % 3 != 0);
      rows_.push_back(std::move(row));
    }
    values_.reserve(values);
    payload_.reserve(payload + 1);
    sent_.reserve(entry + 1);
    received_.reserve(entry + 1);
    sums_.reserve(rows_.size() * sizeof(SquareSums));
    scratch_.reserve(static_cast<std::size_t>(sums_scratch_bytes(tokens_)));
    require(cudaMemset(scratch_.data(), 0, scratch_.size()));
    require(cudaStreamCreate(&stream_));
  }
  TestMessage(const TestMessage&) = delete;
  TestMessage& operator=(const TestMessage&) = delete;
  ~TestMessage() { cudaStreamDestroy(stream_); }

  // Three visits, sent and received; then garbage. What differs first, or "".
  std::string difference(std::mt19937& random) {
    for (visit_ = 0; visit_ < 3; ++visit_) {
      for (TestRow& row : rows_) row.values.fill(one_.content, random);
      std::string found = encode();
      if (found.empty()) found = decode("what the receiver reads");
      if (!found.empty()) return found + ", visit " + std::to_string(visit_);
    }
    for (TestRow& row : rows_) {
      for (std::byte& byte : row.payload) byte = static_cast<std::byte>(random());
      put(row.payload, payload_.at(row.payload_at));
    }
    return decode("what is read from garbage");
  }

 private:
  RowShape shape() const { return {one_.element, one_.width}; }
  bool fresh(std::size_t r) const { return visit_ == 0 || (r % 3 == 2 && visit_ == 1); }

  std::vector<GpuRow> rows(const GpuMemory& entries) const {
    std::vector<GpuRow> rows;
    for (std::size_t r = 0; r < rows_.size(); ++r) {
      GpuRow row = rows_[r].gpu;
      row.values = values_.at(rows_[r].values_at);
      row.payload = payload_.at(rows_[r].payload_at);
      row.entry = has_entry_[r] ? entries.at(rows_[r].entry_at) : nullptr;
      row.fresh = fresh(r);
      row.draw.key += static_cast<std::uint64_t>(visit_) << 8U;
      rows.push_back(row);
    }
    return rows;
  }

  // Some of what the GPU reaches is the host's own, pinned: CUDA finds out by itself.
  static void put(const Bytes& bytes, void* to) {
    if (!bytes.empty()) require(cudaMemcpy(to, bytes.data(), bytes.size(), cudaMemcpyDefault));
  }
  static bool same(const void* gpu, const void* expected, std::size_t size) {
    Bytes bytes(size);
    if (size != 0) require(cudaMemcpy(bytes.data(), gpu, size, cudaMemcpyDefault));
    return size == 0 || std::memcmp(bytes.data(), expected, size) == 0;
  }

  void put_values() {
    for (const TestRow& row : rows_) {
      if (row.values.size() == 0) continue;
      require(cudaMemcpy(values_.at(row.values_at), row.values.data(), row.values.size(),
                         cudaMemcpyHostToDevice));
    }
  }

  std::string encode() {
    put_values();
    const std::vector<GpuRow> gpu = rows(sent_);
    const bool with_sums = visit_ != 1;
    auto* const sums = reinterpret_cast<SquareSums*>(sums_.at(0));
    if (with_sums) sums[0].value = -1;
    cuda::encode_rows(stream_, shape(), gpu, {with_sums ? sums : nullptr, scratch_.at(0)});
#ifdef STRAIT_EMULATED_GPU
    if (with_sums && sums[0].value != -1) return "encode_rows() has waited: the sums";
#endif
    require(cudaStreamSynchronize(stream_));
    for (std::size_t r = 0; r < rows_.size(); ++r) {
      TestRow& row = rows_[r];
      SquareSums plain;
      if (gpu[r].entry == nullptr) {
        plain::quantize(row.values.values(), row.gpu.format, gpu[r].draw, row.payload.data(),
                        &plain);
      } else {
        plain::quantize_change(row.values.values(), row.gpu.format, gpu[r].draw, fresh(r),
                               row.sent.data(), row.payload.data(), &plain);
        if (!same(gpu[r].entry, row.sent.data(), row.sent.size())) return "the sender's entry";
      }
      if (!same(gpu[r].payload, row.payload.data(), row.payload.size())) return "the payload";
      if (with_sums && !are_close(sums[r], plain)) return "the sums";
    }
    return "";
  }

  // Sums are for reports: close, where float32 holds the squares of a token.
  bool are_close(const SquareSums& left, const SquareSums& right) const {
    const auto close = [](double a, double b) { return std::fabs(a - b) <= 1e-4 * std::fabs(b); };
    return left.refused_groups == right.refused_groups &&
           (one_.content != Content::plain ||
            (close(left.value, right.value) && close(left.change, right.change) &&
             close(left.error, right.error)));
  }

  std::string decode(const char* what) {
    const std::vector<GpuRow> gpu = rows(received_);
    cuda::decode_rows(stream_, shape(), gpu);
    require(cudaStreamSynchronize(stream_));
    for (std::size_t r = 0; r < rows_.size(); ++r) {
      TestRow& row = rows_[r];
      if (gpu[r].entry == nullptr) {
        plain::dequantize(row.payload.data(), row.gpu.format, row.read.output());
      } else {
        plain::apply_change(row.payload.data(), row.gpu.format, fresh(r), row.received.data(),
                            row.read.output());
        if (!same(gpu[r].entry, row.received.data(), row.received.size())) {
          return std::string("the receiver's entry, and ") + what;
        }
      }
      if (!same(gpu[r].values, row.read.data(), row.read.size())) return what;
    }
    return "";
  }

  RowCase one_;
  int visit_ = 0;
  std::int64_t tokens_ = 0;
  std::vector<TestRow> rows_;
  std::vector<bool> has_entry_;
  GpuMemory values_{GpuMemory::Kind::device};
  GpuMemory payload_{GpuMemory::Kind::pinned};
  GpuMemory sent_{GpuMemory::Kind::device};
  GpuMemory received_{GpuMemory::Kind::pinned};
  GpuMemory sums_{GpuMemory::Kind::pinned};
  GpuMemory scratch_{GpuMemory::Kind::device};
  cudaStream_t stream_ = nullptr;
};

// What the CPU's test has, and what matters only to a GPU: tokens wider than a block has threads
// for, or than shared memory is given without asking, and more rows than one launch takes.
std::vector<RowCase> all_cases(std::mt19937& random) {
  std::vector<RowCase> cases = some_row_cases(random);
  const GroupFormat widest{8, 64, true};
  cases.insert(cases.begin(), {widest, {}, Element::bfloat16, Content::wild, 1, 60000});
  constexpr std::array<std::int64_t, 5> kWidths{2048, 4100, 4352, 8200, 9000};
  for (unsigned k = 0; k < 15; ++k) {
    RowCase one;
    one.format = {2 + static_cast<int>(random() % 7), 32 << (k % 3), random() % 2 == 0};
    one.draw = {static_cast<Rounding>(random() % 2), random()};
    one.element = static_cast<Element>(k / 3 % 3);
    one.content = static_cast<Content>(k % 3);
    one.width = kWidths[k % kWidths.size()];
    one.tokens = 1;
    cases.push_back(one);
  }
  return cases;
}

// Values at any address of their element.
std::string nf4_difference(std::int64_t count, Element element, std::mt19937& random) {
  std::vector<std::uint8_t> levels(static_cast<std::size_t>((count + 7) / 8 * 4));
  for (std::uint8_t& pair : levels) pair = static_cast<std::uint8_t>(random());
  std::vector<float> sizes(static_cast<std::size_t>(nf4_blocks(count)));
  for (float& size : sizes) {
    size = std::ldexp(static_cast<float>(random()), -20 - static_cast<int>(random() % 150));
  }
  std::vector<float> expected;
  for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
    const unsigned pair = levels[i / 2];
    expected.push_back(kNf4Levels[i % 2 == 0 ? pair >> 4U : pair & 15U] * sizes[i / kNf4Block]);
  }
  RandomRow plain(1, count, element);
  plain::write_values(plain.output(), expected);

  GpuMemory gpu_levels(GpuMemory::Kind::device);
  GpuMemory gpu_sizes(GpuMemory::Kind::device);
  GpuMemory gpu_values(GpuMemory::Kind::device);
  const std::size_t values_at = 4 * (random() % 5);
  gpu_levels.reserve(levels.size());
  gpu_sizes.reserve(sizes.size() * sizeof(float));
  gpu_values.reserve(values_at + plain.size());
  require(cudaMemcpy(gpu_levels.data(), levels.data(), levels.size(), cudaMemcpyHostToDevice));
  require(cudaMemcpy(gpu_sizes.data(), sizes.data(), gpu_sizes.size(), cudaMemcpyHostToDevice));
  cuda::dequantize_nf4(nullptr, reinterpret_cast<const std::uint8_t*>(gpu_levels.data()),
                       static_cast<const float*>(gpu_sizes.data()), count, gpu_values.at(values_at),
                       element);
  require(cudaStreamSynchronize(nullptr));
  Bytes read(plain.size());
  require(cudaMemcpy(read.data(), gpu_values.at(values_at), read.size(), cudaMemcpyDefault));
  if (std::memcmp(read.data(), plain.data(), read.size()) == 0) return "";
  return std::to_string(count) + " values of element " + std::to_string(static_cast<int>(element));
}

int compare_matrices() {
  std::mt19937 random(kSeed);
#ifdef STRAIT_EMULATED_GPU
  emulated::set_seed(kSeed);
#endif
  for (const std::int64_t count : {1, 7, 64, 65, 2047, 2048, 2052, 5000}) {
    for (const Element element : {Element::float32, Element::bfloat16, Element::float16}) {
      const std::string found = nf4_difference(count, element, random);
      if (found.empty()) continue;
      std::printf("GPU and plain implementation differ: a matrix in NF4, %s (seed %u)\n",
                  found.c_str(), kSeed);
      return 1;
    }
  }
  return 0;
}

int compare_bits(std::size_t first, std::size_t step) {
  std::mt19937 random(kSeed);
  const std::vector<RowCase> cases = all_cases(random);
  std::size_t compared = 0;
  for (std::size_t k = first; k < cases.size(); k += step, ++compared) {
    std::mt19937 own(kSeed + static_cast<std::uint32_t>(k));
#ifdef STRAIT_EMULATED_GPU
    emulated::set_seed(kSeed + static_cast<std::uint32_t>(k));
#endif
    const int rows = k == cases.size() / 2 ? kRowsPerLaunch + 2 : 1 + static_cast<int>(own() % 3);
    TestMessage message(cases[k], own, cases[k].width > 1000 ? 2 : rows);
    const std::string found = message.difference(own);
    if (found.empty()) continue;
    std::printf("GPU and plain implementation differ: %s (case %zu: %s, seed %u)\n", found.c_str(),
                k, cases[k].name().c_str(), kSeed);
    return 1;
  }
  std::printf("%zu messages: GPU and plain implementation give the same bits\n", compared);
  return compared == 0 ? 1 : 0;
}

}  // namespace
}  // namespace strait::kernels

// Arguments: compare only every n-th case, from the k-th on.
int main(int argc, char** argv) {
  const std::size_t step = argc > 1 ? std::strtoul(argv[1], nullptr, 10) : 1;
  const std::size_t first = argc > 2 ? std::strtoul(argv[2], nullptr, 10) : 0;
  const int matrices = strait::kernels::compare_matrices();
  return matrices != 0 ? matrices : strait::kernels::compare_bits(first, step == 0 ? 1 : step);
}

#include <ATen/ATen.h>
#include <c10/core/CPUAllocator.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "framework/codec/raw.h"
#include "tests/framework/codec/two_ends.h"

// Every allocation of this program is counted: operator new here, tensors by libtorch's allocator.
namespace {

std::atomic<std::int64_t> allocations{0};

void* counted(std::size_t bytes, std::size_t alignment) {
  ++allocations;
  void* memory = nullptr;
  if (::posix_memalign(&memory, std::max(alignment, sizeof(void*)), bytes == 0 ? 1 : bytes) != 0) {
    throw std::bad_alloc();
  }
  return memory;
}

}  // namespace

// The deletes are not inline: where only they are, the compiler takes free() for a wrong partner.
void* operator new(std::size_t bytes) { return counted(bytes, alignof(std::max_align_t)); }
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return counted(bytes, static_cast<std::size_t>(alignment));
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::align_val_t) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  std::free(memory);
}

namespace strait::codec::allocation_test {
namespace {

constexpr std::int64_t kTokens = 16;
constexpr std::int64_t kWidth = 256;
constexpr std::int64_t kSamples = 8;

class CountingAllocator final : public c10::Allocator {
 public:
  explicit CountingAllocator(c10::Allocator& inner) : inner_(inner) {}
  c10::DataPtr allocate(std::size_t bytes) override {
    ++allocations;
    return inner_.allocate(bytes);
  }
  c10::DeleterFnPtr raw_deleter() const override { return inner_.raw_deleter(); }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }

 private:
  c10::Allocator& inner_;
};

// For one test: libtorch's allocator stays what it was for the others.
class TensorsCounted {
 public:
  TensorsCounted() : before_(c10::GetCPUAllocator()), counting_(*before_) {
    c10::SetCPUAllocator(&counting_, /*priority=*/0);
  }
  ~TensorsCounted() { c10::SetCPUAllocator(before_, 0); }
  TensorsCounted(const TensorsCounted&) = delete;
  TensorsCounted& operator=(const TensorsCounted&) = delete;

 private:
  c10::Allocator* before_;
  CountingAllocator counting_;
};

struct Pair {
  std::unique_ptr<Encoder> encoder;
  std::unique_ptr<Decoder> decoder;
};

// Allocations of the steps after the first `warm` ones.
std::int64_t allocations_of(Pair pair, std::int64_t warm, std::int64_t steps) {
  std::vector<TensorHeader> headers;
  std::vector<at::Tensor> values;
  for (std::int64_t step = 0; step < warm + steps; ++step) {
    headers.push_back(full_rows(store::Step{step}, 0, kTokens, kWidth,
                                {2 * step % kSamples, (2 * step + 1) % kSamples}));
    values.push_back(random_values({2, kTokens, kWidth}, static_cast<std::uint64_t>(step % 3)));
  }
  net::Frame frame;
  std::int64_t before = 0;
  for (std::size_t i = 0; i < headers.size(); ++i) {
    if (static_cast<std::int64_t>(i) == warm) before = allocations;
    frame.clear();
    pair.encoder->encode(headers[i], values[i], frame);
    const Decoded decoded = pair.decoder->decode(headers[i], frame);
    if (!decoded.missing.empty()) throw std::logic_error("the ends differ");
  }
  return allocations - before;
}

Pair sample_pair(const SampleEncoderOptions& options, bool cached) {
  const auto cache = [&] {
    ActivationCacheOptions held;
    held.row_tokens = kTokens;
    held.width = kWidth;
    held.memory_bytes = 1 << 20;
    held.order = [](store::Step step) {
      return std::vector{store::SampleId{2 * number(step) % kSamples},
                         store::SampleId{(2 * number(step) + 1) % kSamples}};
    };
    held.last = store::Step{1000};
    return cached ? std::make_unique<ActivationCache>(held) : nullptr;
  };
  return {std::make_unique<SampleEncoder>(options, cache()),
          std::make_unique<SampleDecoder>(at::kFloat, cache())};
}

TEST(SteadyState, AllocatesNothing) {
  const TensorsCounted counted;
  // The counting itself works.
  const std::int64_t before = allocations;
  static_cast<void>(at::empty({4}));
  ASSERT_GE(allocations - before, 2);

  constexpr std::int64_t kWarm = 2 * kSamples;
  constexpr std::int64_t kSteps = 200;
  SampleEncoderOptions options;
  options.choice = {Choice::Encoding::delta, 4, 8};
  EXPECT_EQ(allocations_of(sample_pair(options, true), kWarm, kSteps), 0);
  options.choice = {Choice::Encoding::fixed, 6, 8};
  EXPECT_EQ(allocations_of(sample_pair(options, false), kWarm, kSteps), 0);
  options.choice = {Choice::Encoding::raw, 16, 8};
  EXPECT_EQ(allocations_of(sample_pair(options, false), kWarm, kSteps), 0);
  EXPECT_EQ(allocations_of({std::make_unique<RawEncoder>(at::kFloat),
                            std::make_unique<RawDecoder>(at::kFloat, at::kFloat)},
                           kWarm, kSteps),
            0);
}

}  // namespace
}  // namespace strait::codec::allocation_test

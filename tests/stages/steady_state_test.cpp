#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "framework/net/node.h"
#include "stages/boundary_codecs.h"
#include "stages/boundary_end.h"
#include "tests/memory_links.h"
#include "tests/stages/large_allocations.h"
#include "tests/stages/stage_threads.h"

// Buffers are reused: once every size has occurred, a boundary does not allocate.
namespace strait::stages {
namespace {

constexpr std::int64_t kRowsOfTensor = 4;
constexpr std::int64_t kTokens = 64;
constexpr std::int64_t kWidthOfTensor = 256;
constexpr int kBurst = 4;  // micro-batches on their way at once
constexpr std::size_t kRawBytes = kRowsOfTensor * kTokens * kWidthOfTensor * sizeof(float);

struct Ends {
  // The links; destroyed last.
  std::unique_ptr<net::Node> upper_node;
  std::unique_ptr<net::Node> lower_node;
  std::unique_ptr<net::Listener> listener;
  WaitClock upper_waits;
  WaitClock lower_waits;
  std::unique_ptr<BoundaryEnd> upper;
  std::unique_ptr<BoundaryEnd> lower;

  void join(std::unique_ptr<net::Link> upper_link, std::unique_ptr<net::Link> lower_link,
            const BoundaryOptions& options) {
    BoundarySetting setting;
    setting.limits = {kRowsOfTensor, kTokens, kWidthOfTensor};
    setting.last = store::Step{1000};
    // The same samples at every step.
    setting.order = [](store::Step) {
      std::vector<store::SampleId> samples;
      for (std::int64_t i = 0; i < kBurst * kRowsOfTensor; ++i)
        samples.push_back(static_cast<store::SampleId>(i));
      return samples;
    };
    setting.side = BoundarySide::sender;
    upper = std::make_unique<BoundaryEnd>(std::move(upper_link), make_codecs(options, setting),
                                          upper_waits, "stage 1");
    setting.side = BoundarySide::receiver;
    lower = std::make_unique<BoundaryEnd>(std::move(lower_link), make_codecs(options, setting),
                                          lower_waits, "stage 0");
  }
};

std::unique_ptr<Ends> over_memory(const BoundaryOptions& options) {
  auto ends = std::make_unique<Ends>();
  auto [first, second] = memory_links({0, 0}, {1, 0}, "boundary 0>1");
  ends->join(std::move(first), std::move(second), options);
  return ends;
}

std::unique_ptr<Ends> over_sockets(const BoundaryOptions& options) {
  auto ends = std::make_unique<Ends>();
  const net::CurveKeyPair upper_keys = net::CurveKeyPair::generate();
  const net::CurveKeyPair lower_keys = net::CurveKeyPair::generate();
  net::NodeOptions node;
  node.run = net::RunId::random();
  node.generation = 1;
  node.name = {0, 0};
  node.keys = upper_keys;
  ends->upper_node = std::make_unique<net::Node>(node);
  node.name = {1, 0};
  node.keys = lower_keys;
  ends->lower_node = std::make_unique<net::Node>(node);
  net::LinkOptions link;
  link.name = "boundary 0>1";
  link.peer = {0, 0};
  link.peer_public_key = upper_keys.public_key;
  ends->listener = ends->lower_node->listen({});
  auto lower = ends->listener->expect(link);
  link.peer = {1, 0};
  link.peer_public_key = lower_keys.public_key;
  auto upper = ends->upper_node->connect(ends->listener->endpoint(), link);
  ends->join(std::move(upper), std::move(lower), options);
  return ends;
}

codec::TensorHeader head_of(codec::Kind kind, std::int64_t step, int micro_batch) {
  codec::TensorHeader header;
  header.kind = kind;
  header.step = store::Step{step};
  header.micro_batch = micro_batch;
  header.rows.padded_length = kTokens;
  for (std::int64_t row = 0; row < kRowsOfTensor; ++row) {
    header.rows.rows.push_back(
        {static_cast<store::SampleId>(micro_batch * kRowsOfTensor + row), {kTokens - 5, 5}});
  }
  return header;
}

// All micro-batches down, then all gradients up.
void play_step(Ends& ends, std::int64_t step, const std::vector<at::Tensor>& values) {
  const Phase phase{store::Step{step}, true};
  std::vector<at::Tensor> held;
  held.reserve(2 * kBurst);
  for (int m = 0; m < kBurst; ++m) {
    ends.upper->send(head_of(codec::Kind::forward, step, m),
                     values[static_cast<std::size_t>((m + step) % kBurst)]);
  }
  for (int m = 0; m < kBurst; ++m) {
    held.push_back(ends.lower->take(codec::Kind::forward, phase, MicroBatch{m}).values);
  }
  for (int m = 0; m < kBurst; ++m) {
    ends.lower->send(head_of(codec::Kind::backward, step, m), held[static_cast<std::size_t>(m)]);
  }
  for (int m = 0; m < kBurst; ++m) {
    held.push_back(ends.upper->take(codec::Kind::backward, phase, MicroBatch{m}).values);
  }
}

// For every size up to that of a raw frame, the most blocks that can be in use at once.
void see_every_size() {
  std::vector<net::Frame> held;
  for (std::size_t bytes = net::FrameMemory::kReusedBytes; bytes < 2 * kRawBytes;
       bytes += bytes / 8) {
    for (int i = 0; i < 8 * kBurst; ++i) held.emplace_back(bytes);
  }
}

// Large allocations of forty steps after the first ten, by library.
std::map<std::string, std::uint64_t> asked_for(Ends& ends) {
  std::vector<at::Tensor> values;
  for (int m = 0; m < kBurst; ++m)
    values.push_back(at::randn({kRowsOfTensor, kTokens, kWidthOfTensor}));
  see_every_size();
  std::int64_t step = 0;
  for (; step < 10; ++step) play_step(ends, step, values);
  const std::uint64_t before = LargeAllocations::count();
  for (; step < 50; ++step) play_step(ends, step, values);
  return LargeAllocations::by_library(before);
}

std::vector<BoundaryOptions> ways() {
  std::vector<BoundaryOptions> all(3);
  all[1].codec.forward = all[1].codec.backward = "fixed";
  all[2].codec.forward = "delta";
  all[2].codec.backward = "fixed";
  all[2].cache.memory_bytes = std::int64_t{8} << 20;
  return all;
}

TEST(SteadyState, CounterSeesAllocations) {
  if (!LargeAllocations::available()) GTEST_SKIP() << "a sanitizer has taken malloc's position";
  const std::uint64_t before = LargeAllocations::count();
  const at::Tensor tensor = at::empty({1 << 16});
  const net::Frame frame(std::size_t{1} << 27);
  EXPECT_GE(LargeAllocations::count(), before + 2);
  EXPECT_EQ(LargeAllocations::by_library(before).count("?"), 0U);
}

TEST(SteadyState, BoundaryOverMemoryLinkAllocatesNothingLarge) {
  if (!LargeAllocations::available()) GTEST_SKIP() << "a sanitizer has taken malloc's position";
  for (const BoundaryOptions& options : ways()) {
    const std::unique_ptr<Ends> ends = over_memory(options);
    for (const auto& [library, count] : asked_for(*ends)) {
      ADD_FAILURE() << count << " by " << library << ", codec " << options.codec.forward;
    }
  }
}

// libzmq and libsodium allocate; our code does not.
TEST(SteadyState, BoundaryOverSocketsAllocatesNothingLargeItself) {
  if (!LargeAllocations::available()) GTEST_SKIP() << "a sanitizer has taken malloc's position";
  for (const BoundaryOptions& options : ways()) {
    const std::unique_ptr<Ends> ends = over_sockets(options);
    for (const auto& [library, count] : asked_for(*ends)) {
      if (library.starts_with("libzmq") || library.starts_with("libsodium")) {
        RecordProperty(fmt::format("{} codec {}", library, options.codec.forward),
                       static_cast<int>(count));
        continue;
      }
      ADD_FAILURE() << count << " by " << library << ", codec " << options.codec.forward;
    }
  }
}

}  // namespace
}  // namespace strait::stages

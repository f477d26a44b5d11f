#include "framework/tensors/snapshot.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <random>

#include "tests/scratch_directory.h"

namespace strait::tensors {
namespace {

using Random = std::mt19937_64;

at::Tensor bytes(std::int64_t count, Random& random) {
  at::Tensor tensor = at::empty({count}, at::kByte);
  auto* byte = tensor.mutable_data_ptr<std::uint8_t>();
  for (std::int64_t i = 0; i < count; ++i) byte[i] = static_cast<std::uint8_t>(random());
  return tensor;
}

std::uint64_t below(std::uint64_t limit, Random& random) { return random() % limit; }

// Reads a snapshot in pieces of random size, up to `most` bytes.
std::vector<at::Tensor> read_all(Snapshot& snapshot, std::uint64_t most, Random random) {
  std::vector<at::Tensor> read;
  for (const TensorSource& source : snapshot.sources()) {
    at::Tensor copy = at::empty(source.shape, source.type);
    const std::span to(static_cast<std::byte*>(copy.mutable_data_ptr()), copy.nbytes());
    for (std::size_t first = 0; first < to.size();) {
      const auto count = std::min<std::size_t>(to.size() - first, 1 + below(most, random));
      source.copy(first, to.subspan(first, count));
      first += count;
    }
    read.push_back(std::move(copy));
  }
  return read;
}

// Changes random ranges, each preserved before, and then everything.
void change(Snapshot& snapshot, const std::vector<NamedTensor>& tensors, Random& random) {
  for (int i = 0; i < 200; ++i) {
    const std::size_t one = below(tensors.size(), random);
    const at::Tensor& tensor = tensors[one].tensor;
    const auto size = static_cast<std::uint64_t>(tensor.nbytes());
    const std::uint64_t first = below(size + 1, random);
    const std::uint64_t last = first + below(size - first + 1, random);
    snapshot.preserve(one, first, last);
    std::fill_n(tensor.mutable_data_ptr<std::uint8_t>() + first, last - first,
                static_cast<std::uint8_t>(i));
  }
  snapshot.preserve_all();
  for (const NamedTensor& one : tensors) one.tensor.fill_(255);
}

// Two snapshots that share a limit, one thread that reads both, a thread for each that changes
// memory.
TEST(Snapshot, HoldsWhatWasThereWhateverChangesMeanwhile) {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Random random(seed);
    const std::uint64_t limits[] = {0, 100, 5'000, 1 << 20};
    const auto memory = std::make_shared<SnapshotMemory>(limits[below(4, random)]);
    std::vector<std::vector<NamedTensor>> tensors(2);
    std::vector<std::vector<at::Tensor>> before(2);
    std::vector<std::unique_ptr<Snapshot>> snapshots;
    for (std::size_t i = 0; i < 2; ++i) {
      for (int t = 0; t < 3; ++t) {
        tensors[i].push_back({"t" + std::to_string(t), bytes(1 + below(20'000, random), random)});
        before[i].push_back(tensors[i].back().tensor.clone());
      }
      snapshots.push_back(std::make_unique<Snapshot>(tensors[i], memory));
    }
    std::vector<std::future<void>> changed;
    for (std::size_t i = 0; i < 2; ++i) {
      changed.push_back(
          std::async(std::launch::async, [&, i, own = Random(seed + 1000 * i)]() mutable {
            change(*snapshots[i], tensors[i], own);
          }));
    }
    for (std::size_t i = 0; i < 2; ++i) {
      const std::vector<at::Tensor> read = read_all(*snapshots[i], 64, random);
      for (std::size_t t = 0; t < read.size(); ++t) EXPECT_TRUE(at::equal(read[t], before[i][t]));
    }
    for (auto& one : changed) one.get();
    EXPECT_EQ(memory->used(), 0U);
    if (HasFailure()) return;
  }
}

TEST(Snapshot, CopiesWithoutReaderUpToLimit) {
  Random random(1);
  const auto memory = std::make_shared<SnapshotMemory>(10'000);
  const std::vector<NamedTensor> tensors = {{"a", bytes(6'000, random)},
                                            {"b", bytes(4'000, random)}};
  Snapshot snapshot(tensors, memory);
  snapshot.preserve_all();
  EXPECT_EQ(memory->used(), 10'000U);
  EXPECT_EQ(memory->waited_seconds(), 0);
  const std::vector<at::Tensor> before = {tensors[0].tensor.clone(), tensors[1].tensor.clone()};
  for (const NamedTensor& one : tensors) one.tensor.zero_();
  const std::vector<at::Tensor> read = read_all(snapshot, 512, random);
  EXPECT_TRUE(at::equal(read[0], before[0]));
  EXPECT_TRUE(at::equal(read[1], before[1]));
  EXPECT_EQ(memory->used(), 0U);
}

TEST(Snapshot, WaitsForReaderAboveLimit) {
  Random random(1);
  const auto memory = std::make_shared<SnapshotMemory>(4'000);
  const std::vector<NamedTensor> tensors = {{"a", bytes(10'000, random)}};
  Snapshot snapshot(tensors, memory);
  std::atomic<std::uint64_t> read = 0;
  auto preserved = std::async(std::launch::async, [&] {
    snapshot.preserve_all();
    return read.load();
  });
  std::vector<std::byte> piece(100);
  const TensorSource source = snapshot.sources().front();
  for (; read < 10'000; read += 100) {
    source.copy(read, piece);
    EXPECT_LE(memory->used(), 4'000U);
  }
  // One piece may have been read that is not counted yet.
  EXPECT_GE(preserved.get() + 100, 6'000U);
}

TEST(Snapshot, ClosingEndsReaderAndWaiters) {
  Random random(1);
  for (const bool abandon : {false, true}) {
    const auto memory = std::make_shared<SnapshotMemory>(0);
    const std::vector<NamedTensor> tensors = {{"a", bytes(1'000, random)}};
    Snapshot snapshot(tensors, memory);
    const TensorSource source = snapshot.sources().front();
    std::vector<std::byte> piece(10);
    source.copy(0, piece);
    auto preserved = std::async(std::launch::async, [&] { snapshot.preserve_all(); });
    abandon ? memory->abandon() : snapshot.close();
    preserved.get();
    EXPECT_TRUE(snapshot.closed());
    EXPECT_THROW(source.copy(10, piece), SnapshotClosed);
  }
}

TEST(Snapshot, WritesSameFileAsItsTensors) {
  const ScratchDirectory folder;
  const std::vector<NamedTensor> tensors = {{"wide", at::arange(600'000).to(at::kDouble)},
                                            {"scalar", at::ones({})},
                                            {"empty", at::ones({0, 3})},
                                            {"strides", at::rand({30, 40}).t()},
                                            {"narrow", at::rand({7}).to(at::kBFloat16)}};
  Snapshot snapshot(tensors, std::make_shared<SnapshotMemory>(0));
  const auto sources = snapshot.sources();
  const store::FileSummary copied =
      write_safetensors(folder / "copied", std::span<const TensorSource>(sources));
  EXPECT_EQ(copied.hash, write_safetensors(folder / "read", tensors).hash);
}

}  // namespace
}  // namespace strait::tensors

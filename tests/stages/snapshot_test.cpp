#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <mutex>
#include <random>
#include <string>

#include "framework/store/file_hash.h"
#include "tests/stages/stage_threads.h"

// Checkpoints that are written while stages train on: the same bits as where all wait for them.
namespace strait::stages {
namespace {

constexpr int kEvery =
    3;  // steps: an epoch, so every cache entry changes until the next checkpoint
constexpr unsigned kEverything = 1U << 28U;  // bytes: more than all that a stage copies

// What all stages save, by step, with the stage's number before each name.
using Saved = std::map<std::int64_t, Tensors>;

void keep(Saved& saved, store::Step step, std::size_t stage, const std::string& name,
          at::Tensor tensor) {
  saved[number(step)].emplace(std::to_string(stage) + " " + name, std::move(tensor));
}

Saved saved_in_the_pause(RunSettings settings) {
  Saved saved;
  std::mutex mutex;
  settings.at_checkpoint = [&](Stage& stage, std::size_t index, store::Step step) {
    const std::lock_guard lock(mutex);
    for (const auto& tensors : {stage.saved_tensors(), stage.saved_caches()}) {
      for (const auto& one : tensors) keep(saved, step, index, one.name, one.tensor.clone());
    }
  };
  EXPECT_EQ(run_stages(settings).errors, std::vector<std::string>{});
  return saved;
}

// Slower than the steps meanwhile: it works on what it has read, again and again. Half is read
// before the gate opens.
std::map<std::string, at::Tensor> read_slowly(const Stage::Snapshots& snapshots,
                                              std::mt19937_64 random,
                                              const std::shared_future<void>& gate) {
  std::vector<tensors::TensorSource> sources = snapshots.state->sources();
  for (const auto& [prefix, cache] : snapshots.caches) {
    for (auto& source : cache->sources(prefix)) sources.push_back(std::move(source));
  }
  std::map<std::string, at::Tensor> read;
  const std::vector<std::byte> work(1 << 20);
  for (const tensors::TensorSource& source : sources) {
    if (2 * read.size() >= sources.size()) gate.wait();
    at::Tensor tensor = at::empty(source.shape, source.type);
    const std::span to(static_cast<std::byte*>(tensor.mutable_data_ptr()), tensor.nbytes());
    for (std::size_t first = 0; first < to.size();) {
      const auto count = std::min<std::size_t>(to.size() - first, 1 + random() % 1024);
      if (store::hash_bytes(work).empty()) throw std::logic_error("no hash");
      source.copy(first, to.subspan(first, count));
      first += count;
    }
    read.emplace(source.name, std::move(tensor));
  }
  snapshots.close();
  return read;
}

// The writers of all stages. If they may wait for training, each is still at work at the next
// update.
class SlowWriters {
 public:
  SlowWriters(std::size_t stages, std::uint64_t seed, bool may_wait)
      : writing_(stages), random_(seed), may_wait_(may_wait) {}

  CheckpointResult take(Stage& stage, std::size_t index, store::Step step, store::Step last) {
    wait_for(index);
    Stage::Snapshots snapshots = stage.snapshot(step);
    const std::shared_ptr<tensors::Snapshot> state = snapshots.state;
    {
      const std::lock_guard lock(mutex_);
      Writing& writing = writing_[index];
      writing = Writing();
      writing.step = step;
      if (!may_wait_) open(writing);
      writing.written =
          std::async(std::launch::async, [snapshots, random = std::mt19937_64(random_()),
                                          gate = writing.gate.get_future().share()] {
            return read_slowly(snapshots, random, gate);
          });
    }
    if (step != last) return {.snapshot = state};
    wait_for(index);
    return {};
  }

  // After an action: counts the writers that are still at work when the last backward is done.
  void look(std::size_t index, const Phase& phase, const schedules::Action& action, int last) {
    Writing& writing = writing_[index];
    const bool update_next = phase.training && action.work == schedules::Work::backward &&
                             number(action.micro_batch) == last && phase.step == writing.step;
    if (!update_next || !writing.written.valid()) return;
    if (writing.written.wait_for(std::chrono::seconds(0)) != std::future_status::ready) ++late;
    open(writing);
  }

  Saved saved;
  std::atomic<int> late = 0;

 private:
  struct Writing {
    store::Step step{};
    std::promise<void> gate;
    bool is_open = false;
    std::future<std::map<std::string, at::Tensor>> written;
  };

  static void open(Writing& writing) {
    if (!std::exchange(writing.is_open, true)) writing.gate.set_value();
  }

  void wait_for(std::size_t index) {
    Writing& writing = writing_[index];
    if (!writing.written.valid()) return;
    open(writing);
    auto tensors = writing.written.get();
    const std::lock_guard lock(mutex_);
    for (auto& [name, tensor] : tensors) keep(saved, writing.step, index, name, std::move(tensor));
  }

  std::mutex mutex_;
  std::vector<Writing> writing_;
  std::mt19937_64 random_;
  bool may_wait_;
};

Saved saved_during_training(RunSettings settings, std::uint64_t memory, bool fits, int& late) {
  settings.snapshots = SnapshotOptions{memory};
  const auto processes = settings.stages() * static_cast<std::size_t>(settings.replicas);
  // Where little fits, training waits for the writers.
  SlowWriters writers(processes, memory + 1, fits);
  settings.take_snapshot = [&](Stage& stage, std::size_t index, store::Step step) {
    return writers.take(stage, index, step, static_cast<store::Step>(settings.steps));
  };
  settings.after = [&](Stage&, std::size_t index, const Phase& phase,
                       const schedules::Action& action) {
    writers.look(index, phase, action, settings.micro_batches - 1);
  };
  EXPECT_EQ(run_stages(settings).errors, std::vector<std::string>{});
  late += writers.late;
  return std::move(writers.saved);
}

void expect_equal(const Saved& pause, const Saved& beside) {
  ASSERT_EQ(beside.size(), pause.size());
  for (const auto& [step, tensors] : pause) {
    const Tensors& others = beside.at(step);
    EXPECT_EQ(others.size(), tensors.size());
    for (const auto& [name, tensor] : tensors) {
      ASSERT_TRUE(others.contains(name)) << name << " of step " << step;
      EXPECT_TRUE(at::equal(others.at(name), tensor)) << name << " of step " << step;
    }
  }
}

void expect_same_bits_during_training(RunSettings settings) {
  settings.checkpoint_every = kEvery;
  settings.steps = 3 * kEvery;
  const Saved pause = saved_in_the_pause(settings);
  ASSERT_EQ(pause.size(), 3U);
  int late = 0;
  // Nothing fits, a part, everything.
  for (const std::uint64_t memory : {0U, 20'000U, kEverything}) {
    SCOPED_TRACE(testing::Message() << "memory " << memory);
    expect_equal(pause, saved_during_training(settings, memory, memory == kEverything, late));
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GT(late, 0) << "no state has changed before it was written";
}

RunSettings two_stages() {
  RunSettings settings;
  settings.blocks = {{0, 1}, {2, 3}};
  return settings;
}

RunSettings with_delta(RunSettings settings) {
  settings.boundary.codec.forward = "delta";
  settings.boundary.codec.backward = "fixed";
  settings.boundary.cache.memory_bytes = 1 << 20;
  return settings;
}

TEST(SnapshotOfStage, HasBitsOfPauseWithoutCaches) {
  expect_same_bits_during_training(two_stages());
}

TEST(SnapshotOfStage, HasBitsOfPauseWithDeltaCaches) {
  expect_same_bits_during_training(with_delta(two_stages()));
}

// Entries in memory and in a file, fewer than samples: some are evicted.
TEST(SnapshotOfStage, HasBitsOfPauseWithSmallCaches) {
  RunSettings settings = with_delta(two_stages());
  settings.boundary.cache.memory_bytes = 5 * 16 * 16 * 2;
  settings.boundary.cache.disk_bytes = 8 * 16 * 16 * 2;
  settings.boundary.cache_folder = testing::TempDir();
  expect_same_bits_during_training(settings);
}

TEST(SnapshotOfStage, HasBitsOfPauseWithInterleavedChunks) {
  RunSettings settings = with_delta({});
  settings.blocks = {{0, 0}, {1, 1}, {2, 2}, {3, 3}};
  settings.chunks = 2;
  settings.schedule = "interleaved";
  expect_same_bits_during_training(settings);
}

TEST(SnapshotOfStage, HasBitsOfPauseInBfloat16) {
  RunSettings settings = with_delta(two_stages());
  settings.bfloat16 = true;
  settings.evaluate = true;
  expect_same_bits_during_training(settings);
}

TEST(SnapshotOfStage, HasBitsOfPauseWithReplicas) {
  for (const std::string method : {"allreduce", "cocktail", "diloco", "powersgd", "onebit_adam"}) {
    if (!campaigns() && (method == "powersgd" || method == "onebit_adam")) continue;
    SCOPED_TRACE(method);
    RunSettings settings = with_delta(two_stages());
    settings.replicas = 2;
    settings.sync.method = method;
    settings.sync.every = 2;
    settings.evaluate = true;
    expect_same_bits_during_training(settings);
  }
}

}  // namespace
}  // namespace strait::stages

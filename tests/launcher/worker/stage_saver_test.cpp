#include "launcher/worker/stage_saver.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "framework/store/checkpoint.h"
#include "framework/store/memory_directory.h"
#include "framework/sync/membership.h"
#include "launcher/base/errors.h"
#include "launcher/recipe/run_files.h"
#include "launcher/worker/stage_settings.h"
#include "stages/stage.h"
#include "tests/memory_links.h"
#include "tests/scratch_directory.h"

namespace strait::worker {
namespace {

using namespace std::chrono_literals;
using store::Step;

constexpr net::ProcessName kSaving{0, 0};
constexpr net::ProcessName kLost{0, 1};

std::unique_ptr<net::Link> dead_link() { return memory_links(kSaving, kLost, "link").first; }

// One of two replicas, for one step and its checkpoint.
plan::StageJob first_of_two(const std::filesystem::path& run) {
  plan::StageJob job;
  job.process = kSaving;
  job.run_directory = run.string();
  plan::Plan& plan = job.plan;
  plan.recipe.pipeline.stages = 1;
  plan.recipe.pipeline.replicas = 2;
  plan.recipe.pipeline.schedule = "1f1b";
  plan.recipe.train.micro_batch = 1;
  plan.recipe.data.row = 8;
  plan.model_config = R"({"model_type": "gpt2", "vocab_size": 31, "n_positions": 8, "n_embd": 8,
                          "n_layer": 1, "n_head": 2})";
  plan.sync_method = "allreduce";
  plan.train.rows = 4;
  plan.steps = 1;
  plan.micro_batches = 1;
  for (const net::ProcessName name : {kSaving, kLost}) {
    plan::Plan::Process process;
    process.name = name;
    process.chunks = {{0, 2}};
    plan.processes.push_back(process);
  }
  return job;
}

stages::StageData rows() {
  data::TokenRows rows;
  rows.row_length = 8;
  for (std::int32_t i = 0; i < 4 * 8; ++i) {
    rows.input_ids.push_back(i % 31);
    rows.loss_mask.push_back(1);
    rows.document.push_back(0);
  }
  return {std::make_shared<const data::TokenFile>(std::move(rows), "rows"), nullptr};
}

// A stage that is the whole pipeline, ready to train.
std::unique_ptr<stages::Stage> connected_stage(const plan::StageJob& job,
                                               stages::StageLinks links = {}) {
  auto stage = std::make_unique<stages::Stage>(stage_options(job, Step{0}));
  stage->initialize();
  links.chunks.resize(1);
  stage->connect(std::move(links), rows(), [] { return stages::Requests{}; });
  return stage;
}

class NoObserver final : public stages::StageObserver {
 public:
  void before(const stages::Phase& /*phase*/, const schedules::Action& /*action*/) override {}
  void after(const stages::Phase& /*phase*/, const schedules::Action& /*action*/) override {}
  void trained(const stages::StepSummary& /*summary*/) override {}
  void evaluated(const stages::StepDecision& /*decision*/, bool /*preferences*/) override {}
};

// A stage whose other replica is lost, so that it saves in epoch 1; the test is its coordinator.
class StageSaverTest : public testing::Test {
 protected:
  StageSaverTest() {
    std::filesystem::create_directory(scratch_ / "run");
    auto [stage, coordinator] = memory_links(kSaving, net::ProcessName::coordinator(), "link");
    coordinator_ = std::move(coordinator);
    control_ = std::make_unique<ControlClient>(std::move(stage));
    tracker_.on_lost([this](std::uint32_t, const std::string&) { tracker_.update(1, {0}); });
    trained_ = std::async(std::launch::async, [this] { train(); });
  }

  void train() {
    stages::StageLinks links;
    for (auto* row : {&links.replicas, &links.consensus}) {
      row->push_back(nullptr);
      row->push_back(dead_link());
    }
    links.tracker = &tracker_;
    const auto stage = connected_stage(job_, std::move(links));
    StageSaver saver(job_, *control_, *stage);
    NoObserver observer;
    stage->run(observer, [&saver](Step steps) { return saver.save(steps); });
  }

  run::ShardsWritten next_shards() {
    const auto deadline = std::chrono::steady_clock::now() + 20s;
    while (const auto frame = coordinator_->receive_until(deadline)) {
      const run::StageMessage message = run::parse_stage_message(*frame);
      if (const auto* shards = std::get_if<run::ShardsWritten>(&message)) return *shards;
    }
    throw std::runtime_error("no shards were written");
  }

  void say(const run::CoordinatorMessage& message) { coordinator_->send(format(message)); }

  bool shard_exists() const {
    return std::filesystem::exists(store::checkpoint_directory(scratch_ / "run", Step{1}) /
                                   store::shard_name(0, 0));
  }

  ScratchDirectory scratch_;
  const plan::StageJob job_ = first_of_two(scratch_ / "run");
  sync::MembershipTracker tracker_{2, 0};
  std::unique_ptr<net::Link> coordinator_;
  std::unique_ptr<ControlClient> control_;
  std::future<void> trained_;
};

TEST_F(StageSaverTest, RemovesShardsOfDroppedCheckpoint) {
  EXPECT_EQ(next_shards().epoch, 1U);
  EXPECT_TRUE(shard_exists());
  say(run::CheckpointDecided{Step{1}, 1, "no room", false});
  control_->wait_for_commit(Step{1}, 1);
  EXPECT_FALSE(shard_exists());
  // The coordinator knows it, and with which code the run ends.
  EXPECT_NO_THROW(trained_.get());
}

// The drop was in flight while the other replicas had already decided to write the step again.
TEST_F(StageSaverTest, LateDropKeepsShardsOfNewerEpoch) {
  EXPECT_EQ(next_shards().epoch, 1U);
  say(run::CheckpointDecided{Step{1}, 0, "a replica left while it was written", true});
  control_->wait_for_commit(Step{1}, 0);
  EXPECT_TRUE(shard_exists());
  say(run::CheckpointDecided{Step{1}, 1});
  EXPECT_NO_THROW(trained_.get());
  EXPECT_TRUE(shard_exists());
}

// A stage without replicas, whose membership cannot change; the test is its coordinator.
class DuringTrainingTest : public testing::Test {
 protected:
  static plan::StageJob job(const std::filesystem::path& run) {
    plan::StageJob job = first_of_two(run);
    job.plan.recipe.pipeline.replicas = 1;
    job.plan.recipe.checkpoint.every = 1;
    job.plan.sync_method.clear();
    job.plan.processes.pop_back();
    job.plan.steps = 3;
    return job;
  }

  DuringTrainingTest() {
    std::filesystem::create_directory(scratch_ / "run");
    auto [stage, coordinator] = memory_links(kSaving, net::ProcessName::coordinator(), "link");
    coordinator_ = std::move(coordinator);
    control_ = std::make_unique<ControlClient>(std::move(stage));
    trained_ = std::async(std::launch::async, [this] { train(); });
  }

  // Reports the steps it has done.
  class Observer final : public stages::StageObserver {
   public:
    explicit Observer(ControlClient& control) : control_(control) {}
    void before(const stages::Phase& /*phase*/, const schedules::Action& /*action*/) override {}
    void after(const stages::Phase& /*phase*/, const schedules::Action& /*action*/) override {}
    void trained(const stages::StepSummary& summary) override {
      run::StepDone done;
      done.step = summary.decision.step;
      control_.send(done);
    }
    void evaluated(const stages::StepDecision& /*decision*/, bool /*preferences*/) override {}

   private:
    ControlClient& control_;
  };

  void train() {
    const auto stage = connected_stage(job_);
    StageSaver saver(job_, *control_, *stage);
    Observer observer(*control_);
    stage->run(observer, [&saver](Step steps) { return saver.save(steps); });
    saver.finish();
  }

  // The next messages, sorted: the writer is a thread of its own.
  std::vector<std::string> read_until(int count) {
    std::vector<std::string> seen;
    const auto deadline = std::chrono::steady_clock::now() + 20s;
    while (static_cast<int>(seen.size()) < count) {
      const auto frame = coordinator_->receive_until(deadline);
      if (!frame) throw std::runtime_error("too few messages");
      const run::StageMessage message = run::parse_stage_message(*frame);
      if (const auto* done = std::get_if<run::StepDone>(&message)) {
        seen.push_back("step " + std::to_string(number(done->step) + 1));
      } else if (const auto* shards = std::get_if<run::ShardsWritten>(&message)) {
        const std::string what = shards->failed ? "failed " : "written ";
        seen.push_back(what + std::to_string(number(shards->step)));
      }
    }
    std::ranges::sort(seen);
    return seen;
  }

  using Seen = std::vector<std::string>;
  void say(const run::CoordinatorMessage& message) { coordinator_->send(format(message)); }
  std::filesystem::path folder(Step step) const {
    return store::checkpoint_directory(scratch_ / "run", step);
  }
  bool shard_exists(Step step) const {
    return std::filesystem::exists(folder(step) / store::shard_name(0, 0));
  }

  ScratchDirectory scratch_;
  const plan::StageJob job_ = job(scratch_ / "run");
  std::unique_ptr<net::Link> coordinator_;
  std::unique_ptr<ControlClient> control_;
  std::future<void> trained_;
};

// Step 2 is trained before checkpoint 1 is decided; then checkpoint 2 is due, and waits for it.
TEST_F(DuringTrainingTest, TrainsOnUntilNextCheckpointIsDue) {
  EXPECT_EQ(read_until(3), (Seen{"step 1", "step 2", "written 1"}));
  say(run::CheckpointDecided{Step{1}, 0});
  EXPECT_EQ(read_until(2), (Seen{"step 3", "written 2"}));
  say(run::CheckpointDecided{Step{2}, 0, "no room", false});
  EXPECT_EQ(read_until(1), (Seen{"written 3"}));
  EXPECT_FALSE(shard_exists(Step{2}));
  EXPECT_EQ(trained_.wait_for(0s), std::future_status::timeout) << "the last one is not decided";
  say(run::CheckpointDecided{Step{3}, 0});
  EXPECT_NO_THROW(trained_.get());
  EXPECT_TRUE(shard_exists(Step{3}));
}

TEST_F(DuringTrainingTest, ReportsFailedWriteAndTrainsOn) {
  EXPECT_EQ(read_until(3), (Seen{"step 1", "step 2", "written 1"}));
  // A file where the folder of the next checkpoint should be.
  std::ofstream(folder(Step{2})) << "in the way";
  say(run::CheckpointDecided{Step{1}, 0});
  EXPECT_EQ(read_until(2), (Seen{"failed 2", "step 3"}));
  say(run::CheckpointDecided{Step{2}, 0, "no room", false});
  EXPECT_EQ(read_until(1), (Seen{"written 3"}));
  say(run::CheckpointDecided{Step{3}, 0});
  EXPECT_NO_THROW(trained_.get());
}

// Checkpoints in memory after each step, none on disk before the last.
class InMemoryTest : public testing::Test {
 protected:
  InMemoryTest() {
    std::filesystem::create_directory(scratch_ / "run");
    job_.plan.recipe.pipeline.replicas = 1;
    job_.plan.recipe.checkpoint.every = 0;
    job_.plan.recipe.checkpoint.memory_every = 1;
    job_.plan.sync_method.clear();
    job_.plan.processes.pop_back();
    job_.plan.steps = 4;
    job_.run = run_;
    auto [stage, coordinator] = memory_links(kSaving, net::ProcessName::coordinator(), "link");
    coordinator_ = std::move(coordinator);
    control_ = std::make_unique<ControlClient>(std::move(stage));
  }

  // Trains to the end; the last step is saved to disk.
  void train() {
    const auto stage = connected_stage(job_);
    StageSaver saver(job_, *control_, *stage);
    NoObserver observer;
    stage->run(
        observer, [&saver](Step steps) { return saver.save(steps); },
        [&](Step steps) {
          auto result = saver.keep(steps);
          reports_.push_back(next());
          on_report_(reports_.back());
          return result;
        });
    saver.finish();
  }

  run::ShardsWritten next() {
    const auto deadline = std::chrono::steady_clock::now() + 20s;
    while (const auto frame = coordinator_->receive_until(deadline)) {
      const run::StageMessage message = run::parse_stage_message(*frame);
      const auto* made = std::get_if<run::ShardsWritten>(&message);
      if (made != nullptr && made->in_memory) return *made;
    }
    throw std::runtime_error("nothing was made in memory");
  }

  ScratchDirectory scratch_;
  const net::RunId run_ = net::RunId::random();
  const std::filesystem::path in_memory_ = plan::memory_directory(run_, 0);
  std::optional<store::MemoryDirectory> memory_{in_memory_};
  plan::StageJob job_ = first_of_two(scratch_ / "run");
  std::unique_ptr<net::Link> coordinator_;
  std::unique_ptr<ControlClient> control_;
  std::vector<run::ShardsWritten> reports_;
  std::function<void(const run::ShardsWritten&)> on_report_ = [](const auto&) {};
};

// On a path that is slower than the steps: no host has taken the first one.
TEST_F(InMemoryTest, TrainsOnAndSkipsWhileTheFormerOneIsNeeded) {
  coordinator_->send(format(run::CoordinatorMessage(run::CheckpointDecided{Step{4}, 0})));
  train();
  ASSERT_EQ(reports_.size(), 3U);
  EXPECT_FALSE(reports_[0].failed);
  EXPECT_EQ(reports_[0].files.size(), 3U);  // weights, optimizer state, hashes
  for (const std::size_t later : {1U, 2U}) {
    EXPECT_TRUE(reports_[later].failed);
    EXPECT_EQ(reports_[later].problem, "");
    EXPECT_TRUE(reports_[later].files.empty());
  }
}

// A machine whose tmpfs is too small or missing.
TEST_F(InMemoryTest, SaysWhyNothingIsInMemoryAndTrainsOn) {
  memory_.reset();
  on_report_ = [&](const run::ShardsWritten& made) {
    coordinator_->send(format(
        run::CoordinatorMessage(run::CheckpointDecided{made.step, 0, "given up", false, true})));
  };
  coordinator_->send(format(run::CoordinatorMessage(run::CheckpointDecided{Step{4}, 0})));
  train();
  ASSERT_EQ(reports_.size(), 3U);
  for (const run::ShardsWritten& made : reports_) {
    EXPECT_TRUE(made.files.empty());
    if (&made == &reports_.front()) {
      EXPECT_NE(made.problem.find(in_memory_.string()), std::string::npos) << made.problem;
    }
  }
}

// The bytes are those that a checkpoint on disk has.
TEST_F(InMemoryTest, HasTheFilesOfACheckpointUntilItIsGivenUp) {
  std::map<std::string, std::string> held;
  on_report_ = [&](const run::ShardsWritten& made) {
    EXPECT_FALSE(made.failed) << made.problem;
    const auto folder = store::checkpoint_directory(in_memory_, made.step);
    for (const store::ShardFile& file : made.files) {
      EXPECT_EQ(store::hash_file(folder / file.name).hash, file.hash);
      held[file.name] = file.hash;
    }
    coordinator_->send(format(
        run::CoordinatorMessage(run::CheckpointDecided{made.step, 0, "given up", false, true})));
    const auto gone = folder;
    const auto deadline = std::chrono::steady_clock::now() + 20s;
    std::error_code absent;
    while (std::filesystem::exists(gone, absent)) {
      if (std::chrono::steady_clock::now() > deadline) throw std::runtime_error("not freed");
      std::this_thread::yield();
    }
  };
  job_.plan.recipe.checkpoint.every = 4;
  coordinator_->send(format(run::CoordinatorMessage(run::CheckpointDecided{Step{4}, 0})));
  train();
  EXPECT_EQ(reports_.size(), 3U);
  // The last step is on disk and, as both fall on it, in memory too.
  const run::ShardsWritten last = next();
  EXPECT_EQ(last.files.size(), 3U) << last.problem;
  for (const store::ShardFile& file : last.files) {
    for (const auto& directory : {scratch_ / "run", in_memory_}) {
      const auto path = store::checkpoint_directory(directory, Step{4}) / file.name;
      EXPECT_EQ(store::hash_file(path).hash, file.hash);
    }
    EXPECT_TRUE(held.contains(file.name));
  }
}

}  // namespace
}  // namespace strait::worker

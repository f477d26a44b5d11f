#include "launcher/worker/stage_saver.h"

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <future>
#include <memory>
#include <stdexcept>
#include <utility>
#include <variant>

#include "framework/net/memory_link.h"
#include "framework/store/checkpoint.h"
#include "framework/sync/membership.h"
#include "launcher/base/errors.h"
#include "launcher/worker/stage_settings.h"
#include "stages/stage.h"
#include "tests/launcher/scratch_directory.h"

namespace strait::worker {
namespace {

using namespace std::chrono_literals;
using store::Step;

constexpr net::ProcessName kSaving{0, 0};
constexpr net::ProcessName kLost{0, 1};

std::pair<std::unique_ptr<net::Link>, std::unique_ptr<net::Link>> link_between(
    net::ProcessName one, net::ProcessName other) {
  net::MemoryEnd left;
  left.name = one;
  left.options.name = "link";
  left.options.peer = other;
  net::MemoryEnd right = left;
  right.name = other;
  right.options.peer = one;
  return net::memory_link(left, right);
}

std::unique_ptr<net::Link> dead_link() { return link_between(kSaving, kLost).first; }

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
  store::TokenRows rows;
  rows.row_length = 8;
  for (std::int32_t i = 0; i < 4 * 8; ++i) {
    rows.input_ids.push_back(i % 31);
    rows.loss_mask.push_back(1);
    rows.document.push_back(0);
  }
  return {std::make_shared<const tensors::TokenFile>(std::move(rows), "rows"), nullptr};
}

class NoObserver final : public stages::StageObserver {
 public:
  void before(const stages::Phase& /*phase*/, const schedules::Action& /*action*/) override {}
  void after(const stages::Phase& /*phase*/, const schedules::Action& /*action*/) override {}
  void trained(const stages::StepSummary& /*summary*/) override {}
  void evaluated(const stages::StepDecision& /*decision*/) override {}
};

// A stage whose other replica is lost, so that it saves in epoch 1; the test is its coordinator.
class StageSaverTest : public testing::Test {
 protected:
  StageSaverTest() {
    auto [stage, coordinator] = link_between(kSaving, net::ProcessName::coordinator());
    coordinator_ = std::move(coordinator);
    control_ = std::make_unique<ControlClient>(std::move(stage));
    tracker_.on_lost([this](std::uint32_t, const std::string&) { tracker_.update(1, {0}); });
    trained_ = std::async(std::launch::async, [this] { train(); });
  }

  void train() {
    stages::Stage stage(stage_options(job_, Step{0}));
    stage.initialize();
    stages::StageLinks links;
    links.chunks.resize(1);
    for (auto* row : {&links.replicas, &links.consensus}) {
      row->push_back(nullptr);
      row->push_back(dead_link());
    }
    links.tracker = &tracker_;
    stage.connect(std::move(links), rows(), [] { return stages::Requests{}; });
    StageSaver saver(job_, *control_, stage);
    NoObserver observer;
    stage.run(observer, [&saver](Step steps) { return saver.save(steps); });
  }

  control::ShardsWritten next_shards() {
    const auto deadline = std::chrono::steady_clock::now() + 20s;
    while (const auto frame = coordinator_->receive_until(deadline)) {
      const control::StageMessage message = control::parse_stage_message(*frame);
      if (const auto* shards = std::get_if<control::ShardsWritten>(&message)) return *shards;
    }
    throw std::runtime_error("no shards were written");
  }

  void say(const control::CoordinatorMessage& message) { coordinator_->send(format(message)); }

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
  say(control::Dropped{Step{1}, "no room", false, 1});
  control_->wait_for_commit(Step{1}, 1);
  EXPECT_FALSE(shard_exists());
  // The coordinator knows it, and with which code the run ends.
  EXPECT_NO_THROW(trained_.get());
}

// The drop was under way while the other replicas had already decided to write the step again.
TEST_F(StageSaverTest, LateDropKeepsShardsOfNewerEpoch) {
  EXPECT_EQ(next_shards().epoch, 1U);
  say(control::Dropped{Step{1}, "a replica left while it was written", true, 0});
  control_->wait_for_commit(Step{1}, 0);
  EXPECT_TRUE(shard_exists());
  say(control::Committed{Step{1}, 1});
  EXPECT_NO_THROW(trained_.get());
  EXPECT_TRUE(shard_exists());
}

}  // namespace
}  // namespace strait::worker

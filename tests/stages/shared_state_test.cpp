// Replicas of a group that share the optimizer's state train as replicas that do not, bit for bit.
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <numeric>
#include <random>

#include "tests/stages/compare_runs.h"

namespace strait::stages {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

RunSettings sharing(RunSettings settings) {
  settings.sync.share_state = true;
  return settings;
}

RunSettings in_one_group(int replicas) {
  RunSettings settings;
  settings.replicas = replicas;
  settings.micro_batches = 2;
  settings.rows = 1;
  settings.steps = 6;
  settings.evaluate = true;
  settings.group.groups = {std::vector<std::uint32_t>(static_cast<std::size_t>(replicas))};
  std::iota(settings.group.groups[0].begin(), settings.group.groups[0].end(), 0U);
  settings.group.limits.setup = std::chrono::seconds(20);
  return settings;
}

// Two groups of two, between which a method runs.
RunSettings in_two_groups(const std::string& method) {
  RunSettings settings = in_one_group(4);
  settings.group.groups = {{0, 2}, {1, 3}};
  settings.micro_batches = 1;
  settings.sync.method = method;
  settings.sync.every = 2;
  return settings;
}

template <class Value>
const Value& one_of(std::mt19937_64& random, const std::vector<Value>& values) {
  return values[random() % values.size()];
}

RunSettings random_run(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  RunSettings settings = in_one_group(one_of<int>(random, {2, 3}));
  if (one_of<int>(random, {0, 1, 2}) == 0) {
    settings = in_two_groups(one_of<std::string>(random, {"allreduce", "cocktail", "diloco"}));
  }
  if (one_of<int>(random, {1, 2}) == 2) settings.blocks = {{0, 1}, {2, 3}};
  settings.micro_batches = one_of<int>(random, {1, 3});
  settings.moments =
      one_of<MomentType>(random, {MomentType::float32, MomentType::bfloat16, MomentType::int8});
  settings.bfloat16 = one_of<int>(random, {0, 1}) == 1;
  settings.muon = one_of<int>(random, {0, 0, 1}) == 1;
  settings.tied = one_of<int>(random, {0, 1}) == 1;
  settings.llama = one_of<int>(random, {0, 1}) == 1;
  settings.clip = one_of<double>(random, {0, 0.2});
  settings.checkpoint_every = one_of<int>(random, {0, 2});
  settings.on_disk = one_of<int>(random, {0, 1}) == 1;
  return settings;
}

std::string text_of(const RunSettings& settings) {
  return fmt::format(
      "{} with {} replicas, {} stages, {} micro-batches, moments {}, bfloat16 {}, muon {}, tied "
      "{}, llama {}, clip {}, on disk {}",
      settings.sync.method, settings.replicas, settings.stages(), settings.micro_batches,
      static_cast<int>(settings.moments), settings.bfloat16, settings.muon, settings.tied,
      settings.llama, settings.clip, settings.on_disk);
}

void expect_same_masters(const RunResult& one, const RunResult& other) {
  ASSERT_EQ(one.masters.size(), other.masters.size());
  for (std::size_t i = 0; i < one.masters.size(); ++i) {
    expect_same_tensors(one.masters[i], other.masters[i]);
  }
}

class RandomRuns : public testing::TestWithParam<std::uint64_t> {};

TEST_P(RandomRuns, HaveBitsOfRunsThatDoNotShareState) {
  const RunSettings settings = random_run(GetParam());
  const RunResult expected = run_stages(settings);
  const RunResult got = run_stages(sharing(settings));
  expect_same_run(expected, got, text_of(settings));
  expect_same_masters(expected, got);
}

// Where the run stops, with or without shared state, and where it goes on.
TEST_P(RandomRuns, ResumeWithTheOtherSettingToTheSameBits) {
  RunSettings settings = random_run(GetParam() + 1000);
  settings.checkpoint_every = 2;
  const RunResult whole = run_stages(settings);
  RunSettings half = settings;
  half.stop_at = 2;
  for (const auto& [before, after] :
       {std::pair{half, sharing(settings)}, std::pair{sharing(half), settings},
        std::pair{sharing(half), sharing(settings)}}) {
    const RunResult stopped = run_stages(before);
    ASSERT_THAT(stopped.errors, IsEmpty());
    const RunResult resumed = run_stages(after, stopped.saved, stopped.steps);
    ASSERT_THAT(resumed.errors, IsEmpty());
    const std::string what = text_of(settings);
    EXPECT_EQ(resumed.losses, std::vector(whole.losses.begin() + 2, whole.losses.end())) << what;
    SCOPED_TRACE(what);
    expect_same_tensors(whole.saved, resumed.saved);
    expect_same_masters(whole, resumed);
  }
}

INSTANTIATE_TEST_SUITE_P(, RandomRuns, testing::Range(std::uint64_t{0}, std::uint64_t{12}));

// The parts are cut anew.
TEST(SharedState, ResumesWithOtherNumberOfReplicas) {
  RunSettings before = sharing(in_one_group(2));
  before.stop_at = 2;
  const RunResult stopped = run_stages(before);
  ASSERT_THAT(stopped.errors, IsEmpty());
  for (const int replicas : {2, 3}) {
    RunSettings after = in_one_group(replicas);
    after.exact = replicas == 2;
    const RunResult expected = run_stages(after, stopped.saved, 2);
    const RunResult got = run_stages(sharing(after), stopped.saved, 2);
    expect_same_run(expected, got, fmt::format("{} replicas", replicas));
    expect_same_masters(expected, got);
  }
}

// The values of all moments that a process saves, by replica.
std::vector<std::int64_t> saved_moments_of(const RunSettings& settings) {
  std::vector<std::int64_t> values(static_cast<std::size_t>(settings.replicas));
  RunSettings counted = settings;
  counted.steps = 2;
  counted.checkpoint_every = 1;
  counted.at_checkpoint = [&](Stage& stage, std::size_t process, store::Step) {
    std::int64_t count = 0;
    for (const tensors::NamedTensor& one : stage.saved_tensors()) {
      if (one.name.ends_with("_moment")) count += one.tensor.numel();
    }
    values[process] = count;
  };
  EXPECT_THAT(run_stages(counted).errors, IsEmpty());
  return values;
}

TEST(SharedState, IsHeldInPartsThatAreEachOnOneReplica) {
  for (const int replicas : {2, 3}) {
    const auto all = saved_moments_of(in_one_group(replicas));
    EXPECT_EQ(std::count(all.begin() + 1, all.end(), 0), replicas - 1) << "the leader saves all";
    const auto parts = saved_moments_of(sharing(in_one_group(replicas)));
    EXPECT_EQ(std::reduce(parts.begin(), parts.end()), all[0]);
    EXPECT_LT(std::ranges::max(parts), all[0] * 2 / (replicas + 1));
    EXPECT_GT(std::ranges::min(parts), 0);
  }
}

// A weight that is no number in one replica's forward.
TEST(SharedState, SkipsStepsAsWithoutIt) {
  const auto skipping = [](RunSettings settings) {
    auto was = std::make_shared<float>();
    const auto spoil = [was](bool back) {
      return [was, back](Stage& stage, std::size_t process, const Phase& phase,
                         const schedules::Action& action) {
        const bool here = process == 1 && phase.training && number(phase.step) == 2;
        if (!here || action.work != schedules::Work::forward) return;
        const at::NoGradGuard no_grad;
        const at::Tensor value = stage.optimizer().slots().front().master.view({-1})[0];
        if (!back) *was = value.item<float>();
        value.fill_(back ? *was : std::numeric_limits<float>::quiet_NaN());
      };
    };
    settings.before = spoil(false);
    settings.after = spoil(true);
    return run_stages(settings);
  };
  RunSettings settings = in_one_group(2);
  settings.micro_batches = 1;
  const RunResult expected = skipping(settings);
  const RunResult got = skipping(sharing(settings));
  ASSERT_TRUE(expected.skips[2]);
  EXPECT_EQ(got.skips, expected.skips);
  expect_same_tensors(expected.saved, got.saved);
  expect_same_masters(expected, got);
}

TEST(SharedState, EndsWithReplicaThatDies) {
  RunSettings settings = sharing(in_one_group(3));
  settings.before = [](Stage&, std::size_t process, const Phase& phase, const schedules::Action&) {
    if (process == 1 && number(phase.step) == 2) throw std::runtime_error("killed");
  };
  const RunResult got = run_stages(settings);
  EXPECT_THAT(got.errors,
              testing::UnorderedElementsAre(HasSubstr("killed"), HasSubstr("ended the link"),
                                            HasSubstr("ended the link")));
}

}  // namespace
}  // namespace strait::stages

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <mutex>
#include <random>

#include "tests/stages/losing_replicas.h"

namespace strait::stages {
namespace {

using testing::IsEmpty;

constexpr int kStepsOfRejoins = 8;
constexpr int kMostRejoinRounds = 200;  // until enough of them had a rejoin

// A process that is killed after a number of calls to its links, again and again: its next lifetime
// begins when its replica rejoins.
class Lifetimes {
 public:
  Lifetimes(RunSettings& settings, std::size_t process, std::vector<int> lives)
      : lives_(std::move(lives)) {
    settings.rejoin_count = static_cast<int>(lives_.size());
    lives_.push_back(1 << 30);
    begin();
    settings.returns = [this](std::uint32_t) { begin(); };
    kill(settings, process, left_);
  }
  std::size_t ended() const { return life_ - 1 + (*left_ < 0 ? 1 : 0); }

 private:
  void begin() { left_ = std::make_shared<std::atomic<int>>(lives_[life_++]); }

  std::vector<int> lives_;
  std::size_t life_ = 0;
  net::DyingLink::Calls left_;
};

template <class T>
std::vector<T> tail(const std::vector<T>& all, std::size_t count) {
  return {all.end() - static_cast<std::ptrdiff_t>(std::min(count, all.size())), all.end()};
}

// After the last rejoin all three replicas train as one, to the end.
void expect_trained_together(const RunResult& result, const RunResult& whole) {
  const auto [steps, came] = result.rejoins.back();
  const auto together = static_cast<std::size_t>(kStepsOfRejoins - steps);
  for (std::size_t replica = 1; replica < kReplicas; ++replica) {
    expect_same_model(result.models[0], result.models[replica]);
    EXPECT_EQ(tail(result.curves[replica], together), tail(result.curves[0], together)) << replica;
    // The rows of all replicas are counted again.
    EXPECT_EQ(tail(result.tokens[replica], together), tail(whole.tokens[0], together)) << replica;
  }
  for (const double loss : result.curves[came == 0 ? 1 : 0]) EXPECT_TRUE(std::isfinite(loss));
  EXPECT_EQ(result.curves[came == 0 ? 1 : 0].size(), kStepsOfRejoins);
}

class RejoinAfterKill : public testing::TestWithParam<LosingShape> {};

TEST_P(RejoinAfterKill, TrainsOnWithTheOthers) {
  const auto& [method, stages, chunks] = GetParam();
  const std::uint64_t seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 chance(seed);
  RunSettings settings = losing_replicas(method, stages, kStepsOfRejoins, chunks);
  const RunResult whole = run_stages(settings);
  ASSERT_THAT(whole.errors, IsEmpty());

  int rejoin_count = 0;
  int second = 0;
  const int rounds = campaigns() ? 12 : 4;
  for (int round = 0; round < rounds || rejoin_count < 4 || second < 1; ++round) {
    ASSERT_LT(round, kMostRejoinRounds) << rejoin_count << " came back, " << second << " twice";
    const std::size_t process = chance() % static_cast<std::size_t>(kReplicas * stages);
    const std::vector<int> moments = {static_cast<int>(chance() % 150),
                                      static_cast<int>(chance() % 100)};
    SCOPED_TRACE(testing::Message() << "process " << process << " after " << moments[0] << " and "
                                    << moments[1] << " calls");
    const Lifetimes lives(settings, process, moments);
    const RunResult result = run_stages(settings);
    if (result.rejoins.empty()) continue;
    ++rejoin_count;
    second += result.rejoins.size() == 2 ? 1 : 0;
    ASSERT_LE(lives.ended(), result.rejoins.size() + 1);
    if (lives.ended() == result.rejoins.size()) {
      expect_trained_together(result, whole);
      continue;
    }
    // Killed once more, after the last rejoin.
    const std::size_t dead = process / static_cast<std::size_t>(stages);
    const std::size_t left = dead == 0 ? 1 : 0;
    expect_same_model(result.models[left], result.models[3 - dead - left]);
    EXPECT_EQ(result.curves[left], result.curves[3 - dead - left]);
    EXPECT_EQ(result.curves[left].size(), kStepsOfRejoins);
  }
}

INSTANTIATE_TEST_SUITE_P(, RejoinAfterKill, testing::ValuesIn(losing_shapes(1)), shape_name);
INSTANTIATE_TEST_SUITE_P(Interleaved, RejoinAfterKill,
                         testing::Values(std::tuple("cocktail", 2, 2)), shape_name);

// Saved tensors of every process at checkpoints and at the beginning of the next step, by step.
struct Around {
  std::mutex mutex;
  std::map<std::int64_t, Tensors> at;
  std::map<std::int64_t, Tensors> behind;

  void watch(RunSettings& settings) {
    settings.at_checkpoint = [this](Stage& stage, std::size_t, store::Step made) {
      keep(stage, number(made), at);
    };
    settings.before = [this](Stage& stage, std::size_t, const Phase& phase,
                             const schedules::Action&) {
      if (phase.training) keep(stage, number(phase.step), behind);
    };
  }
  void keep(Stage& stage, std::int64_t steps, std::map<std::int64_t, Tensors>& where) {
    const std::lock_guard lock(mutex);
    for (const tensors::NamedTensor& tensor : stage.saved_tensors()) {
      where[steps].try_emplace(tensor.name, tensor.tensor.clone());
    }
  }
};

// Kills a replica in its first step; it rejoins at the first checkpoint.
RunResult run_with_rejoin(RunSettings& settings, Around& around) {
  around.watch(settings);
  const Lifetimes lives(settings, 1, {30});
  return run_stages(settings);
}

TEST(Rejoin, WithAllreduceEqualsResumeOfAllReplicas) {
  RunSettings settings = losing_replicas("allreduce", 1, kStepsOfRejoins);
  Around around;
  const RunResult result = run_with_rejoin(settings, around);
  ASSERT_EQ(result.rejoins.size(), 1U);
  const std::int64_t steps = result.rejoins[0].first;

  RunSettings again = losing_replicas("allreduce", 1, kStepsOfRejoins);
  again.exact = false;
  const RunResult resumed = run_stages(again, around.at[steps], steps);
  ASSERT_THAT(resumed.errors, IsEmpty());
  for (std::size_t replica = 0; replica < kReplicas; ++replica) {
    expect_same_model(resumed.models[replica], result.models[replica]);
    EXPECT_EQ(tail(result.curves[replica], resumed.curves[0].size()), resumed.curves[0]);
  }
}

// Changes that the others have not synced yet are kept.
TEST(Rejoin, KeepsStateOfOthersAndStartsFromModel) {
  RunSettings settings = losing_replicas("cocktail", 1, kStepsOfRejoins);
  settings.sync.top = 0.1;
  Around around;
  const RunResult result = run_with_rejoin(settings, around);
  ASSERT_EQ(result.rejoins.size(), 1U);
  const Tensors& before = around.at[result.rejoins[0].first];
  const Tensors& after = around.behind[result.rejoins[0].first];
  int of_others = 0;
  for (const auto& [name, tensor] : before) {
    const auto behind = after.find(name);
    ASSERT_NE(behind, after.end()) << name;
    EXPECT_TRUE(at::equal(tensor, behind->second)) << name;
    of_others += name.starts_with("replica-") ? 1 : 0;
  }
  EXPECT_GT(of_others, 0);
  int own = 0;
  for (const auto& [name, tensor] : after) {
    const std::string weights = "replica-1/weights/";
    const std::string residual = "replica-1/residual/";
    if (name.starts_with(residual)) {
      EXPECT_FALSE(tensor.any().item<bool>()) << name;
    }
    if (!name.starts_with(weights)) continue;
    const std::string rest = name.substr(weights.size());
    EXPECT_TRUE(at::equal(tensor, before.at(rest))) << name;
    ++own;
  }
  EXPECT_GT(own, 0);
}

// A replica that is absent from the start is in no sum.
TEST(AbsentReplica, IsNotCountedAndCanJoin) {
  for (const int chunks : {1, 2}) {
    SCOPED_TRACE(testing::Message() << chunks << " chunks");
    RunSettings settings = losing_replicas("cocktail", 2, kStepsOfRejoins, chunks);
    const RunResult whole = run_stages(settings);
    settings.absent = {1};
    const RunResult without = run_stages(settings);
    ASSERT_THAT(without.errors, IsEmpty());
    EXPECT_THAT(without.rejoins, IsEmpty());
    EXPECT_THAT(without.curves[1], IsEmpty());
    EXPECT_EQ(without.curves[0], without.curves[2]);
    EXPECT_EQ(without.curves[0].size(), kStepsOfRejoins);
    expect_same_model(without.models[0], without.models[2]);
    // From the very first step on.
    for (std::size_t step = 0; step < kStepsOfRejoins; ++step) {
      EXPECT_LT(without.tokens[0][step], whole.tokens[0][step]) << step;
    }

    settings.rejoin_count = 1;
    const RunResult result = run_stages(settings);
    ASSERT_THAT(result.errors, IsEmpty());
    ASSERT_EQ(result.rejoins.size(), 1U);
    EXPECT_EQ(result.rejoins[0].second, 1U);
    expect_trained_together(result, whole);
  }
}

}  // namespace
}  // namespace strait::stages

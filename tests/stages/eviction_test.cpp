#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "tests/stages/losing_replicas.h"

namespace strait::stages {
namespace {

using testing::Each;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr int kSteps = 6;
constexpr int kMostRounds = 200;  // until enough of them had a kill

RunSettings three_replicas(const std::string& method, int stages, int chunks = 1) {
  RunSettings settings = losing_replicas(method, stages, kSteps, chunks);
  settings.checkpoint_every = 3;
  return settings;
}

// Kills one process after a number of calls to its links. False if the run ended before.
bool killed(RunSettings& settings, std::size_t process, int calls, RunResult& result) {
  const auto left = std::make_shared<std::atomic<int>>(calls);
  kill(settings, process, left);
  result = run_stages(settings);
  return *left < 0;
}

void expect_one_model(const RunResult& result, const std::vector<std::size_t>& replicas) {
  const Tensors& first = result.models[replicas.front()];
  for (const std::size_t replica : replicas) {
    expect_same_model(first, result.models[replica]);
    EXPECT_EQ(result.curves[replica], result.curves[replicas.front()]);
    EXPECT_EQ(result.tokens[replica], result.tokens[replicas.front()]);
  }
}

class Eviction : public testing::TestWithParam<LosingShape> {};

TEST_P(Eviction, OthersContinueWithEqualModels) {
  const auto& [method, stages, chunks] = GetParam();
  const std::uint64_t seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 chance(seed);
  RunSettings settings = three_replicas(method, stages, chunks);
  // The number of calls in a whole run: a kill may happen at any of them.
  const auto counted = std::make_shared<std::atomic<int>>(1 << 30);
  kill(settings, 0, counted);
  const RunResult whole = run_stages(settings);
  ASSERT_THAT(whole.errors, IsEmpty());
  expect_one_model(whole, {0, 1, 2});
  const int calls = (1 << 30) - *counted;

  const int rounds = campaigns() ? 17 : 6;
  int kills = 0;
  for (int round = 0; round < rounds || kills < 6; ++round) {
    ASSERT_LT(round, kMostRounds) << kills << " were killed";
    const std::size_t process = chance() % static_cast<std::size_t>(kReplicas * stages);
    const int when = static_cast<int>(chance() % static_cast<std::uint64_t>(calls));
    SCOPED_TRACE(testing::Message() << "process " << process << " after " << when << " calls");
    RunResult result;
    if (!killed(settings, process, when, result)) continue;
    ++kills;
    const std::size_t dead = process / static_cast<std::size_t>(stages);
    for (const std::string& error : result.errors) {
      const auto name = [&](std::size_t i) { return "stage " + std::to_string(i) + ":"; };
      const std::size_t first = dead * static_cast<std::size_t>(stages);
      EXPECT_TRUE(error.starts_with(name(first)) ||
                  error.starts_with(name(first + static_cast<std::size_t>(stages) - 1)))
          << error;
    }
    std::vector<std::size_t> left = {0, 1, 2};
    std::erase(left, dead);
    expect_one_model(result, left);
    ASSERT_EQ(result.curves[left[0]].size(), kSteps);
    EXPECT_LE(result.tokens[left[0]].back(), whole.tokens[0].back());
    for (const double loss : result.curves[left[0]]) EXPECT_TRUE(std::isfinite(loss));
    // Steps before the kill equal the steps of a run without it.
    const auto& curve = result.curves[left[0]];
    const auto apart = std::ranges::mismatch(curve, whole.curves[0]).in1 - curve.begin();
    for (std::size_t step = 0; step < static_cast<std::size_t>(apart); ++step) {
      EXPECT_EQ(result.tokens[left[0]][step], whole.tokens[0][step]) << step;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(, Eviction, testing::ValuesIn(losing_shapes(0)), shape_name);
INSTANTIATE_TEST_SUITE_P(Interleaved, Eviction, testing::Values(std::tuple("cocktail", 2, 2)),
                         shape_name);

TEST(WithoutTracker, KilledReplicaEndsRun) {
  RunSettings settings = three_replicas("cocktail", 1);
  settings.replicas_leave = false;
  RunResult result;
  ASSERT_TRUE(killed(settings, 1, 20, result));
  EXPECT_EQ(result.errors.size(), 3U);
  EXPECT_THAT(result.errors, testing::Contains(HasSubstr("killed by the test")));
}

}  // namespace
}  // namespace strait::stages

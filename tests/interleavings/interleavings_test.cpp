#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>

#include "tests/campaigns.h"
#include "tests/interleavings/exploration.h"

namespace strait::interleavings {
namespace {

void print(const std::string& what, const Exploration& done) {
  std::cout << what << ": " << done.kills() << " kills, " << done.states() << " states, "
            << done.executions() << " executions, " << done.outcomes().size() << " outcomes"
            << std::endl;
}

// A gradient's round, which is undone if it has not passed; a round that is applied one step later;
// one that is applied by an agreement of its own.
constexpr std::array kMethods = {"allreduce", "cocktail", "diloco"};

// Of these a campaign tries all orders of two stages and a replica that joins.
constexpr std::array kJoiningToTheEnd = {"allreduce", "diloco"};

void explore_all(const std::string& what, Case one, std::span<const char* const> methods) {
  for (const char* const method : methods) {
    for (std::uint32_t stage = 0; stage < one.stages; ++stage) {
      for (std::uint32_t replica = 0; replica < one.replicas; ++replica) {
        one.method = method;
        one.victim = net::ProcessName{stage, replica};
        const Exploration done(one);
        print(std::string(method) + ", " + what + ", " + one.victim->describe() + " killed", done);
        ASSERT_EQ(done.failure(), "");
        ASSERT_GT(done.kills(), 1U);
      }
    }
  }
}

// The same from the first operation of each process towards its last, for five minutes or
// STRAIT_MINUTES.
void explore_in_time(const std::string& what, Case one) {
  using Clock = std::chrono::steady_clock;
  const char* const minutes = std::getenv("STRAIT_MINUTES");
  const Clock::time_point until =
      Clock::now() + std::chrono::minutes(minutes == nullptr ? 5 : std::stoi(minutes));
  std::uint64_t kills = 0;
  std::uint64_t states = 0;
  std::uint32_t ended = 0;
  const std::uint32_t all = one.stages * one.replicas;
  for (one.operations = 0; ended < all && Clock::now() < until; ++one.operations) {
    ended = 0;
    for (std::uint32_t process = 0; process < all && Clock::now() < until; ++process) {
      one.victim = net::ProcessName{process / one.replicas, process % one.replicas};
      const Exploration done(one, 1, one.operations + 1);
      ASSERT_EQ(done.failure(), "") << one.method << ", " << one.victim->describe();
      kills += done.kills();
      states += done.states();
      ended += done.kills() == 0 ? 1 : 0;
    }
  }
  std::cout << one.method << ", " << what << ": " << kills << " kills, " << states << " states, "
            << (ended == all ? "all there are"
                             : fmt::format("of the first {} operations", one.operations))
            << std::endl;
}

TEST(Interleavings, KillBeforeAnyMessageForksNothingAndStopsNoProcess) {
  explore_all("1 stage", {}, kMethods);
}

TEST(Interleavings, KillWhileAReplicaJoinsForksNothingAndStopsNoProcess) {
  Case one;
  one.arrives = 2;
  one.checkpoint = 1;
  explore_all("1 stage, replica 2 joins", one, kMethods);
}

TEST(Interleavings, KillOfOneOfTwoStagesForksNothingAndStopsNoProcess) {
  Case one;
  one.stages = 2;
  one.steps = 1;
  one.victim = net::ProcessName{1, 1};
  const Exploration done(one, 1, 1);  // of which the rest is a campaign
  print("allreduce, 2 stages, killed at once", done);
  EXPECT_EQ(done.failure(), "");
  EXPECT_GT(done.states(), 100'000U);
}

TEST(Interleavings, CampaignOfTwoStages) {
  if (!campaigns()) GTEST_SKIP() << "part of the campaigns: STRAIT_CAMPAIGNS=1";
  Case one;
  one.stages = 2;
  one.steps = 1;
  explore_all("2 stages", one, kMethods);
}

TEST(Interleavings, CampaignOfTwoStagesWhileAReplicaJoins) {
  if (!campaigns()) GTEST_SKIP() << "part of the campaigns: STRAIT_CAMPAIGNS=1";
  Case one;
  one.stages = 2;
  one.arrives = 2;
  one.checkpoint = 1;
  explore_all("2 stages, replica 2 joins", one, kJoiningToTheEnd);
  one.method = "cocktail";
  explore_in_time("2 stages, replica 2 joins", one);
}

TEST(Interleavings, KillBetweenTwoSendsForksNothingAndStopsNoProcess) {
  Case one;
  one.sends_are_operations = true;
  explore_all("1 stage, each send", one, kMethods);
}

TEST(Interleavings, WithoutFaultAllEndEqual) {
  for (const bool joins : {false, true}) {
    for (const char* const method : kMethods) {
      Case one;
      one.method = method;
      one.stages = 2;
      if (joins) one.arrives = 1;
      one.checkpoint = 1;
      const Exploration done(one);
      EXPECT_EQ(done.failure(), "");
      EXPECT_EQ(done.outcomes().size(), 1U);
    }
  }
}

// What the reduction leaves out has no other outcome, for each of the first `last` kills; and it is
// more than that many times what is left.
void compare_with_all_orders(Case one, int last, std::uint64_t times) {
  std::uint64_t reduced_executions = 0;
  std::uint64_t all_executions = 0;
  std::size_t outcomes = 0;
  for (; one.operations < last; ++one.operations) {
    one.reduced = true;
    const Exploration reduced(one, 1, one.operations + 1);
    one.reduced = false;
    const Exploration all(one, 1, one.operations + 1);
    ASSERT_EQ(reduced.failure() + all.failure(), "");
    ASSERT_EQ(reduced.outcomes(), all.outcomes()) << "after " << one.operations << " operations";
    if (all.kills() == 0) break;
    reduced_executions += reduced.executions();
    all_executions += all.executions();
    outcomes += all.outcomes().size();
  }
  std::cout << one.method << ", " << one.victim->describe() << " killed: " << reduced_executions
            << " executions, not reduced " << all_executions << ", " << outcomes << " outcomes of "
            << one.operations << " kills\n";
  EXPECT_GT(all_executions, times * reduced_executions);
  EXPECT_GT(outcomes, static_cast<std::size_t>(one.operations));
}

TEST(Interleavings, ReductionLosesNoOutcome) {
  Case one;
  one.steps = 1;
  one.victim = net::ProcessName{0, 1};
  compare_with_all_orders(one, 1 << 20, 10);
}

// With kills inside the save at which the replica joins.
TEST(Interleavings, ReductionLosesNoOutcomeWhileAReplicaJoins) {
  Case one;
  one.arrives = 2;
  one.checkpoint = 1;
  for (const char* const method : kMethods) {
    for (std::uint32_t replica = 0; replica < (campaigns() ? one.replicas : 1); ++replica) {
      one.method = method;
      one.victim = net::ProcessName{0, replica};
      compare_with_all_orders(one, campaigns() ? 1 << 20 : 9, 5);
    }
  }
}

struct Planted {
  Mistake mistake;
  const char* method;
  std::uint32_t stages;
};

TEST(Interleavings, FindsPlantedMistakes) {
  const std::vector<Planted> all = {
      {Mistake::undo_passed_round, "allreduce", 1},
      {Mistake::undo_passed_round, "cocktail", 1},
      {Mistake::undo_passed_round, "diloco", 1},
      {Mistake::keep_round, "allreduce", 1},
      {Mistake::keep_round, "cocktail", 1},
      {Mistake::keep_round, "diloco", 1},
      {Mistake::apply_before_all_reported, "allreduce", 1},
      {Mistake::apply_before_all_reported, "diloco", 1},
      {Mistake::report_incomplete_round, "allreduce", 1},
      {Mistake::report_incomplete_round, "cocktail", 1},
      {Mistake::forget_dropped_checkpoint, "allreduce", 1},
      {Mistake::forget_dropped_checkpoint, "cocktail", 1},
      {Mistake::forget_dropped_checkpoint, "diloco", 1},
  };
  for (const Planted& planted : all) {
    Case one;
    one.method = planted.method;
    one.stages = planted.stages;
    one.mistake = planted.mistake;
    one.victim = net::ProcessName{0, 2};
    const Exploration done(one);
    const int number = static_cast<int>(planted.mistake);
    EXPECT_NE(done.failure(), "") << planted.method << ", mistake " << number;
    std::cout << planted.method << ", mistake " << number << ": after " << done.states()
              << " states " << done.failure().substr(0, 160) << "\n";
  }
}

}  // namespace
}  // namespace strait::interleavings

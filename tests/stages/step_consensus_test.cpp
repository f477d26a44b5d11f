#include "stages/step_consensus.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <limits>
#include <numeric>
#include <random>
#include <thread>

#include "framework/codec/message.h"
#include "stages/step_decision.h"
#include "tests/memory_links.h"
#include "tests/stages/stage_threads.h"

namespace strait::stages {
namespace {

using Norms = StepConsensus::Norms;
using Proposal = StepConsensus::Proposal;

Proposal proposal(double loss, const std::vector<double>& squared_norms) {
  Proposal made;
  made.report.step = static_cast<store::Step>(7);
  made.report.loss = loss;
  made.report.tokens = 100;
  made.report.target_tokens = 240;  // of all replicas: the same in every report
  for (const double squared : squared_norms) {
    const auto parameter = static_cast<std::uint32_t>(made.report.squared_norms.size());
    made.report.squared_norms.push_back({parameter, squared});
  }
  return made;
}

StepConsensus::Proposal combine(const std::vector<StepConsensus::Proposal>& proposals,
                                Norms norms) {
  std::vector<std::uint32_t> replicas(proposals.size());
  std::iota(replicas.begin(), replicas.end(), 0);
  return combine_proposals(replicas, proposals, norms);
}

TEST(StepConsensus, AddsLossesAndTokens) {
  const auto all =
      combine({proposal(0.5, {}), proposal(0.25, {}), proposal(1.0, {})}, Norms::of_the_sum);
  EXPECT_EQ(all.report.loss, 1.75);
  EXPECT_EQ(all.report.tokens, 300);
  EXPECT_EQ(all.report.target_tokens, 240);
  EXPECT_FALSE(all.stop);
}

TEST(StepConsensus, KeepsNormsOfSummedGradient) {
  const std::vector<double> norms = {0.1, 3.0};
  const auto all =
      combine({proposal(0, norms), proposal(0, norms), proposal(0, norms)}, Norms::of_the_sum);
  EXPECT_EQ(all.report.squared_norms, proposal(0, norms).report.squared_norms);
}

TEST(StepConsensus, AveragesNormsOfOwnGradients) {
  const auto all = combine({proposal(0, {1.0, 8.0}), proposal(0, {2.0, 4.0})}, Norms::of_each);
  EXPECT_EQ(all.report.squared_norms, proposal(0, {1.5, 6.0}).report.squared_norms);
}

TEST(StepConsensus, OneReplicaSkipsStepOrStopsForAll) {
  for (std::size_t one = 0; one < 3; ++one) {
    std::vector<Proposal> proposals = {proposal(1, {1}), proposal(1, {1}), proposal(1, {1})};
    proposals[one].stop = true;
    EXPECT_TRUE(combine(proposals, Norms::of_each).stop);
    proposals[one].report.loss = std::numeric_limits<double>::quiet_NaN();
    EXPECT_TRUE(decide_step(combine(proposals, Norms::of_each).report, 1.0, false).skip);
    proposals[one].report.loss = 1;
    proposals[one].report.squared_norms = {{0, std::numeric_limits<double>::infinity()}};
    EXPECT_TRUE(decide_step(combine(proposals, Norms::of_each).report, 1.0, false).skip);
  }
}

TEST(StepConsensus, RefusesReportsWithDifferentNumberOfNorms) {
  try {
    combine_proposals({2, 5}, {proposal(0, {1.0}), proposal(0, {1.0, 2.0})}, Norms::of_each);
    FAIL();
  } catch (const codec::CodecError& error) {
    EXPECT_STREQ(error.what(), "replica 5 reports 2 gradient norms and replica 2 1");
  }
}

// The first stages of three replicas, each with its own tracker.
class FirstStages {
 public:
  explicit FirstStages(bool with_trackers = true) {
    std::array<std::vector<std::unique_ptr<net::Link>>, 3> links;
    for (auto& row : links) row.resize(3);
    for (std::uint32_t a = 0; a < 3; ++a) {
      for (std::uint32_t b = a + 1; b < 3; ++b) {
        std::tie(links[a][b], links[b][a]) = memory_links({0, a}, {0, b}, "consensus");
      }
    }
    for (std::uint32_t r = 0; r < 3; ++r) {
      trackers.push_back(std::make_unique<sync::MembershipTracker>(3, r));
      stages.push_back(
          std::make_unique<StepConsensus>(std::move(links[r]), r, Norms::of_each, waits[r],
                                          with_trackers ? trackers.back().get() : nullptr));
    }
  }
  std::future<StepConsensus::Result> run_round(std::size_t replica, const Proposal& mine) {
    return std::async(std::launch::async,
                      [this, replica, mine] { return stages[replica]->run_round(mine); });
  }
  void evict(std::uint32_t replica) {
    std::vector<std::uint32_t> members = {0, 1, 2};
    std::erase(members, replica);
    for (auto& tracker : trackers) tracker->update(1, members);
  }

  std::array<WaitClock, 3> waits;
  std::vector<std::unique_ptr<sync::MembershipTracker>> trackers;
  std::vector<std::unique_ptr<StepConsensus>> stages;
};

TEST(StepConsensus, RepeatsRoundWithoutProposalOfEvictedReplica) {
  FirstStages all;
  auto first = all.run_round(0, proposal(1, {1}));
  auto second = all.run_round(1, proposal(2, {3}));
  all.evict(2);
  for (auto* round : {&first, &second}) {
    const StepConsensus::Result result = round->get();
    EXPECT_FALSE(result.complete);
    EXPECT_EQ(result.epoch, 1U);
  }
  auto again = all.run_round(0, proposal(1, {1}));
  const StepConsensus::Result result = all.run_round(1, proposal(2, {3})).get();
  EXPECT_TRUE(result.complete);
  EXPECT_EQ(result.members, (std::vector<std::uint32_t>{0, 1}));
  EXPECT_EQ(result.all.report.loss, 3);
  ASSERT_EQ(result.all.report.squared_norms.size(), 1U);
  EXPECT_EQ(result.all.report.squared_norms[0].value, 2);
  EXPECT_EQ(again.get().all.report.loss, 3);
}

// The evicted replica had sent its proposal to replica 0 only, which then completed the round.
TEST(StepConsensus, RoundCompletedByOneMemberCountsForAll) {
  FirstStages all;
  all.stages[2]->link(1)->abort(net::LinkError(net::LinkError::Kind::lost, "cut by the test"));
  auto evicted = all.run_round(2, proposal(4, {1}));
  auto second = all.run_round(1, proposal(2, {1}));
  const StepConsensus::Result first = all.run_round(0, proposal(1, {1})).get();
  EXPECT_TRUE(first.complete);
  EXPECT_EQ(first.all.report.loss, 7);
  EXPECT_EQ(first.epoch, 0U);

  all.evict(2);
  auto next = all.run_round(0, proposal(1, {1}));
  const StepConsensus::Result recovered = second.get();
  EXPECT_TRUE(recovered.complete);
  EXPECT_EQ(recovered.all.report.loss, 7);
  EXPECT_EQ(recovered.members, (std::vector<std::uint32_t>{0, 1, 2}));
  EXPECT_EQ(recovered.epoch, 1U);
  EXPECT_FALSE(next.get().complete);
  EXPECT_THROW(evicted.get(), net::LinkError);
}

TEST(StepConsensus, RepeatsRoundIfOneMemberLacksSyncData) {
  FirstStages all;
  Proposal incomplete = proposal(2, {1});
  incomplete.report.round_incomplete = true;
  auto second = all.run_round(1, incomplete);
  auto first = all.run_round(0, proposal(1, {1}));
  auto evicted = all.run_round(2, proposal(1, {1}));
  all.evict(2);
  EXPECT_FALSE(first.get().complete);
  EXPECT_FALSE(second.get().complete);
  EXPECT_THROW(evicted.get(), net::LinkError);
}

TEST(StepConsensus, RefusesNewEpochIfMembershipIsFixed) {
  FirstStages all(false);
  all.stages[1]->rejoin({1, {0, 1, 2}, 1});
  auto newer = all.run_round(1, proposal(1, {1}));
  EXPECT_THROW(all.run_round(0, proposal(1, {1})).get(), codec::CodecError);
  all.stages[0]->link(1)->abort(net::LinkError(net::LinkError::Kind::aborted, "test is over"));
  EXPECT_THROW(newer.get(), net::LinkError);
}

// ---- Replicas that train apart.

TEST(StepConsensus, ReplicaThatTrainsApartWaitsForNobodyForSomeSteps) {
  FirstStages all(false);
  Proposal mine = proposal(1, {});
  mine.report.joint = false;
  mine.stop = true;  // what others have not read yet stops no replica
  for (std::size_t i = 0; i < StepConsensus::kLag; ++i) {
    const StepConsensus::Result result = all.stages[0]->run_late_round(mine);
    EXPECT_EQ(result.all.report.loss, 1);
    EXPECT_FALSE(result.all.stop);
  }
}

// What each of three replicas proposes in each step, and in which steps all must agree anyway.
struct ApartCase {
  static constexpr std::size_t kSteps = 60;
  std::array<std::vector<Proposal>, 3> proposals;

  explicit ApartCase(std::uint32_t seed) {
    std::mt19937 random(seed);
    const unsigned joint_percent = random() % 30;
    std::vector<bool> joint;
    for (std::size_t step = 0; step < kSteps; ++step)
      joint.push_back(random() % 100 < joint_percent);
    joint.back() = true;
    for (auto& mine : proposals) {
      for (std::size_t step = 0; step < kSteps; ++step) {
        Proposal& made = mine.emplace_back(proposal(static_cast<double>(random() % 8), {}));
        made.report.step = static_cast<store::Step>(step);
        made.report.joint = joint[step];
        made.skip = random() % 10 == 0;
        made.stop = random() % 40 == 0;
        made.save = random() % 30 == 0 ? 1 + random() % 5 : 0;
      }
    }
  }
};

using ApartResults = std::vector<Proposal>;

ApartResults run_apart(StepConsensus& consensus, const std::vector<Proposal>& proposals,
                       std::uint32_t seed) {
  std::mt19937 random(seed);
  ApartResults results;
  for (const Proposal& mine : proposals) {
    for (unsigned turns = random() % 4; turns > 0; --turns) std::this_thread::yield();
    results.push_back(consensus.run_late_round(mine).all);
  }
  return results;
}

// All replicas read a request in the same step, at most kLag steps after it was made. In that step,
// and in every joint one, each knows what all of them propose.
TEST(StepConsensus, ReplicasThatTrainApartReadRequestsInTheSameStep) {
  for (std::uint32_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    const ApartCase made(seed);
    FirstStages all(false);
    std::array<std::future<ApartResults>, 3> running;
    for (std::uint32_t r = 0; r < 3; ++r) {
      running[r] = std::async(std::launch::async, [&, r] {
        return run_apart(*all.stages[r], made.proposals[r], 3 * seed + r);
      });
    }
    std::array<ApartResults, 3> results;
    for (std::uint32_t r = 0; r < 3; ++r) results[r] = running[r].get();
    std::size_t read = 0;  // requests of earlier steps
    for (std::size_t step = 0; step < ApartCase::kSteps; ++step) {
      const Proposal& first = results[0][step];
      const bool requested = first.stop || first.save > 0;
      const bool joint = made.proposals[0][step].report.joint || requested;
      for (std::uint32_t r = 0; r < 3; ++r) {
        const Proposal& result = results[r][step];
        ASSERT_EQ(std::tuple(result.stop, result.save), std::tuple(first.stop, first.save)) << step;
        const bool expected = joint ? first.skip : made.proposals[r][step].skip;
        EXPECT_EQ(result.skip, expected) << step;
      }
      if (!joint) continue;
      Proposal expected =
          combine({made.proposals[0][step], made.proposals[1][step], made.proposals[2][step]},
                  Norms::of_each);
      EXPECT_EQ(first.skip, expected.skip) << step;
      EXPECT_EQ(first.report.loss, expected.report.loss) << step;
      bool stop = false;
      std::uint32_t save = 0;
      for (; read <= step; ++read) {
        for (const auto& mine : made.proposals) {
          stop = stop || mine[read].stop;
          save = std::max(save, mine[read].save);
          const bool asks = mine[read].stop || mine[read].save > 0;
          EXPECT_TRUE(!asks || step - read <= StepConsensus::kLag) << step;
        }
      }
      EXPECT_EQ(first.stop, stop) << step;
      EXPECT_EQ(first.save, save) << step;
    }
  }
}

}  // namespace
}  // namespace strait::stages

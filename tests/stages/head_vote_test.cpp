#include "stages/head_vote.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <future>
#include <limits>
#include <tuple>

#include "framework/codec/codec_error.h"
#include "framework/net/memory_link.h"

namespace strait::stages {
namespace {

using Norms = HeadVote::Norms;

HeadVote::Vote vote(double loss, const std::vector<double>& squared_norms) {
  HeadVote::Vote vote;
  vote.report.step = static_cast<store::Step>(7);
  vote.report.loss = loss;
  vote.report.tokens = 100;
  vote.report.target_tokens = 240;  // of all replicas: everybody says the same
  for (const double squared : squared_norms) {
    const auto parameter = static_cast<std::uint32_t>(vote.report.squared_norms.size());
    vote.report.squared_norms.push_back({parameter, squared});
  }
  return vote;
}

TEST(HeadVote, LossesAndTokensAreThoseOfAll) {
  const auto all = together({vote(0.5, {}), vote(0.25, {}), vote(1.0, {})}, Norms::of_the_sum);
  EXPECT_EQ(all.report.loss, 1.75);
  EXPECT_EQ(all.report.tokens, 300);
  EXPECT_EQ(all.report.target_tokens, 240);
  EXPECT_FALSE(all.stop);
}

TEST(HeadVote, NormsOfAnAgreedGradientAreNobodysMean) {
  const std::vector<double> norms = {0.1, 3.0};
  const auto all = together({vote(0, norms), vote(0, norms), vote(0, norms)}, Norms::of_the_sum);
  EXPECT_EQ(all.report.squared_norms, vote(0, norms).report.squared_norms);
}

TEST(HeadVote, NormsOfEachAreTheirMean) {
  const auto all = together({vote(0, {1.0, 8.0}), vote(0, {2.0, 4.0})}, Norms::of_each);
  EXPECT_EQ(all.report.squared_norms, vote(0, {1.5, 6.0}).report.squared_norms);
}

TEST(HeadVote, OneIsEnoughToSkipAStepOrToStop) {
  for (std::size_t one = 0; one < 3; ++one) {
    std::vector<HeadVote::Vote> votes = {vote(1, {1}), vote(1, {1}), vote(1, {1})};
    votes[one].stop = true;
    EXPECT_TRUE(together(votes, Norms::of_each).stop);
    votes[one].report.loss = std::numeric_limits<double>::quiet_NaN();
    EXPECT_TRUE(decide(together(votes, Norms::of_each).report, 1.0, false).skip);
    votes[one].report.loss = 1;
    votes[one].report.squared_norms = {{0, std::numeric_limits<double>::infinity()}};
    EXPECT_TRUE(decide(together(votes, Norms::of_each).report, 1.0, false).skip);
  }
}

TEST(HeadVote, NormsOfAnotherModelAreRefused) {
  EXPECT_THROW(together({vote(0, {1.0}), vote(0, {1.0, 2.0})}, Norms::of_each), codec::CodecError);
}

// Heads of three replicas on a thread each, with a word of who takes part for each of them.
class Heads {
 public:
  Heads() {
    std::array<std::vector<std::unique_ptr<net::Link>>, 3> links;
    for (auto& row : links) row.resize(3);
    for (std::uint32_t a = 0; a < 3; ++a) {
      for (std::uint32_t b = a + 1; b < 3; ++b) {
        net::MemoryEnd one;
        one.name = {0, a};
        one.options.name = "vote";
        one.options.peer = {0, b};
        net::MemoryEnd other = one;
        std::swap(other.name, other.options.peer);
        std::tie(links[a][b], links[b][a]) = net::memory_link(one, other);
      }
    }
    for (std::uint32_t r = 0; r < 3; ++r) {
      trackers.push_back(std::make_unique<sync::MembershipTracker>(3, r));
      heads.push_back(std::make_unique<HeadVote>(std::move(links[r]), r, Norms::of_each, waits[r],
                                                 trackers.back().get()));
    }
  }
  std::future<HeadVote::Result> cast(std::size_t head, const HeadVote::Vote& vote) {
    return std::async(std::launch::async, [this, head, vote] { return heads[head]->cast(vote); });
  }
  void leave(std::uint32_t replica) {
    std::vector<std::uint32_t> members = {0, 1, 2};
    std::erase(members, replica);
    for (auto& tracker : trackers) tracker->update(1, members);
  }

  std::array<WaitClock, 3> waits;
  std::vector<std::unique_ptr<sync::MembershipTracker>> trackers;
  std::vector<std::unique_ptr<HeadVote>> heads;
};

TEST(HeadVote, WithoutTheVoteOfWhoLeftItIsCastAgainByTheOthers) {
  Heads all;
  auto first = all.cast(0, vote(1, {1}));
  auto second = all.cast(1, vote(2, {3}));
  all.leave(2);
  for (auto* head : {&first, &second}) {
    const HeadVote::Result result = head->get();
    EXPECT_FALSE(result.passed);
    EXPECT_EQ(result.epoch, 1U);
  }
  auto again = all.cast(0, vote(1, {1}));
  const HeadVote::Result result = all.cast(1, vote(2, {3})).get();
  EXPECT_TRUE(result.passed);
  EXPECT_EQ(result.voters, (std::vector<std::uint32_t>{0, 1}));
  EXPECT_EQ(result.all.report.loss, 3);
  ASSERT_EQ(result.all.report.squared_norms.size(), 1U);
  EXPECT_EQ(result.all.report.squared_norms[0].value, 2);
  EXPECT_EQ(again.get().all.report.loss, 3);
}

// The one that left had voted, but told only one of the others, who had then heard all.
TEST(HeadVote, WhatHasPassedForOneHasPassedForAll) {
  Heads all;
  all.heads[2]->link(1)->abort(net::LinkError(net::LinkError::Kind::lost, "cut by the test"));
  auto gone = all.cast(2, vote(4, {1}));
  auto second = all.cast(1, vote(2, {1}));
  const HeadVote::Result first = all.cast(0, vote(1, {1})).get();
  EXPECT_TRUE(first.passed);
  EXPECT_EQ(first.all.report.loss, 7);
  EXPECT_EQ(first.epoch, 0U);

  all.leave(2);
  auto next = all.cast(0, vote(1, {1}));
  const HeadVote::Result told = second.get();
  EXPECT_TRUE(told.passed);
  EXPECT_EQ(told.all.report.loss, 7);
  EXPECT_EQ(told.voters, (std::vector<std::uint32_t>{0, 1, 2}));
  EXPECT_EQ(told.epoch, 1U);
  EXPECT_FALSE(next.get().passed);
  EXPECT_THROW(gone.get(), net::LinkError);
}

TEST(HeadVote, WhoseRoundIsBrokenHoldsUpTheVoteOfAll) {
  Heads all;
  HeadVote::Vote broken = vote(2, {1});
  broken.report.parted = true;
  auto second = all.cast(1, broken);
  auto first = all.cast(0, vote(1, {1}));
  auto gone = all.cast(2, vote(1, {1}));
  all.leave(2);
  EXPECT_FALSE(first.get().passed);
  EXPECT_FALSE(second.get().passed);
  EXPECT_THROW(gone.get(), net::LinkError);
}

}  // namespace
}  // namespace strait::stages

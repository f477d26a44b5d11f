#include "stages/head_vote.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "framework/codec/codec_error.h"

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
  EXPECT_TRUE(all.report.finite);
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
    votes[one].report.finite = false;
    EXPECT_TRUE(decide(together(votes, Norms::of_each).report, 1.0, false).skip);
    votes[one].report.finite = true;
    votes[one].report.squared_norms = {{0, std::numeric_limits<double>::infinity()}};
    EXPECT_TRUE(decide(together(votes, Norms::of_each).report, 1.0, false).skip);
  }
}

TEST(HeadVote, NormsOfAnotherModelAreRefused) {
  EXPECT_THROW(together({vote(0, {1.0}), vote(0, {1.0, 2.0})}, Norms::of_each), codec::CodecError);
}

}  // namespace
}  // namespace strait::stages

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>

#include "launcher/worker/model_part.h"

namespace strait::worker {
namespace {

using run::Sampling;

// Probabilities 0.5, 0.25, 0.15, 0.1 of tokens 2, 0, 3, 1.
at::Tensor logits() {
  return at::tensor(
      std::vector<float>{std::log(0.25F), std::log(0.1F), std::log(0.5F), std::log(0.15F)});
}

// How often each token is chosen by many sequences.
std::map<std::int64_t, double> shares(const Sampling& sampling,
                                      const std::vector<std::int32_t>& tokens = {1}) {
  constexpr int kDraws = 20'000;
  std::map<std::int64_t, double> share;
  for (int sequence = 0; sequence < kDraws; ++sequence) {
    share[choose_token(logits(), sampling, sequence, tokens)] += 1.0 / kDraws;
  }
  return share;
}

TEST(ChooseToken, TakesTheLikeliestWithoutTemperature) {
  Sampling sampling;
  sampling.top_k = 3;
  EXPECT_EQ(choose_token(logits(), sampling, 0, {}), 2);
}

TEST(ChooseToken, DrawsByProbability) {
  Sampling sampling;
  sampling.temperature = 1;
  const auto share = shares(sampling);
  EXPECT_NEAR(share.at(2), 0.5, 0.015);
  EXPECT_NEAR(share.at(0), 0.25, 0.015);
  EXPECT_NEAR(share.at(3), 0.15, 0.015);
  EXPECT_NEAR(share.at(1), 0.1, 0.015);
}

// The chance of each of many tokens is its probability, by the formula in float64.
TEST(ChooseToken, DrawsFromALargeVocabulary) {
  const at::Tensor logits = at::arange(1000, at::kFloat).mul(0.7).sin().mul(2);
  Sampling sampling;
  sampling.temperature = 0.8;
  const at::Tensor wanted = (logits.to(at::kDouble) / sampling.temperature).softmax(0);
  constexpr int kDraws = 200'000;
  at::Tensor counts = at::zeros({1000}, at::kDouble);
  auto* const count = counts.mutable_data_ptr<double>();
  for (int sequence = 0; sequence < kDraws; ++sequence) {
    count[choose_token(logits, sampling, sequence, {})] += 1;
  }
  // Pearson's statistic has a mean of 999 and a deviation of 45.
  const at::Tensor off = (counts - wanted * kDraws).square() / (wanted * kDraws);
  EXPECT_LT(off.sum().item<double>(), 999 + 4 * 45);
  // A temperature that is no number of float32 takes the likeliest.
  sampling.temperature = 1e-300;
  EXPECT_EQ(choose_token(logits, sampling, 3, {}), logits.argmax().item<std::int64_t>());
}

TEST(ChooseToken, TemperatureFlattens) {
  Sampling sampling;
  sampling.temperature = 2;
  const double sum = std::sqrt(0.5) + std::sqrt(0.25) + std::sqrt(0.15) + std::sqrt(0.1);
  EXPECT_NEAR(shares(sampling).at(2), std::sqrt(0.5) / sum, 0.015);
}

TEST(ChooseToken, LimitsKeepTheLikeliest) {
  Sampling sampling;
  sampling.temperature = 1;
  const auto kept = [](const Sampling& limits) {
    std::set<std::int64_t> tokens;
    for (const auto& [token, share] : shares(limits)) tokens.insert(token);
    return tokens;
  };
  using Tokens = std::set<std::int64_t>;
  Sampling limits = sampling;
  limits.top_k = 2;
  EXPECT_EQ(kept(limits), (Tokens{2, 0}));
  limits = sampling;
  limits.top_p = 0.75;  // reached by the first two, in float32 just or just not
  limits.top_p = 0.74;
  EXPECT_EQ(kept(limits), (Tokens{2, 0}));
  limits.top_p = 0.76;
  EXPECT_EQ(kept(limits), (Tokens{2, 0, 3}));
  limits.top_p = 1e-6;
  EXPECT_EQ(kept(limits), (Tokens{2}));
  limits = sampling;
  limits.min_p = 0.29;
  EXPECT_EQ(kept(limits), (Tokens{2, 0, 3}));
  limits.min_p = 0.31;
  EXPECT_EQ(kept(limits), (Tokens{2, 0}));
  limits.min_p = 1;
  EXPECT_EQ(kept(limits), (Tokens{2}));
}

TEST(ChooseToken, PenaltyMovesSeenTokensTowardsUnlikely) {
  Sampling sampling;
  sampling.repetition_penalty = 2;
  // Logits are negative here: -0.69 becomes -1.39, which equals token 0's.
  EXPECT_EQ(choose_token(logits(), sampling, 0, std::vector<std::int32_t>{2, 2, 2}), 0);
  EXPECT_EQ(choose_token(logits() + 3, sampling, 0, std::vector<std::int32_t>{2}), 0);
  EXPECT_EQ(choose_token(logits(), sampling, 0, std::vector<std::int32_t>{0, 1, 3}), 2);
}

TEST(ChooseToken, ChanceDependsOnSeedSequenceAndLength) {
  Sampling sampling;
  sampling.temperature = 1;
  const auto drawn = [&](std::uint64_t seed, std::int64_t sequence, std::size_t length) {
    std::vector<std::int64_t> tokens;
    for (std::size_t i = 0; i < 64; ++i) {
      sampling.seed = seed;
      const std::vector<std::int32_t> before(length + i, 1);
      tokens.push_back(choose_token(logits(), sampling, sequence, before));
    }
    return tokens;
  };
  EXPECT_EQ(drawn(1, 0, 1), drawn(1, 0, 1));
  EXPECT_NE(drawn(1, 0, 1), drawn(2, 0, 1));
  EXPECT_NE(drawn(1, 0, 1), drawn(1, 1, 1));
  EXPECT_NE(drawn(1, 0, 1), drawn(1, 0, 2));
}

}  // namespace
}  // namespace strait::worker

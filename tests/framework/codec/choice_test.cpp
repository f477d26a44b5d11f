#include "framework/codec/choice.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace strait::codec {
namespace {

using Encoding = Choice::Encoding;

// A million values a step and a second of compute: bytes a second are bits a value / 8e-6.
Measured path_of(double bits_per_value, std::optional<double> change = 0.3) {
  return {bits_per_value * 1e6 / 8, 1.0, 1e6, change, std::nullopt};
}

TEST(Choice, StaysUnchangedBeforeFirstMeasurement) {
  const Choice now{Encoding::delta, 4, 8};
  EXPECT_EQ(next_choice({}, now, {}).choice, now);
}

TEST(Choice, TakesTheBestThatFitsBesideCompute) {
  const Choice now{Encoding::delta, 4, 8};
  EXPECT_EQ(next_choice({}, now, path_of(100)).choice.encoding, Encoding::raw);
  EXPECT_EQ(next_choice({}, now, path_of(13)).choice, (Choice{Encoding::delta, 8, 8}));
  EXPECT_EQ(next_choice({}, now, path_of(9)).choice, (Choice{Encoding::delta, 6, 8}));
  EXPECT_EQ(next_choice({}, now, path_of(5)).choice, now);
}

TEST(Choice, NeverGoesBelowTheLimitsHoweverSlowThePath) {
  for (const int least : {2, 3, 4, 6}) {
    ChoiceLimits limits;
    limits.least_bits = least;
    limits.fixed_bits = std::max(4, least);
    const Choice chosen = next_choice(limits, first_choice(limits), path_of(0.1)).choice;
    EXPECT_EQ(chosen, (Choice{Encoding::delta, least, 8}));
  }
}

TEST(Choice, SendsValuesIfChangesAreNotSmaller) {
  const Choice now{Encoding::delta, 4, 8};
  const Choice chosen = next_choice({}, now, path_of(5, 1.2)).choice;
  EXPECT_EQ(chosen.encoding, Encoding::fixed);
  EXPECT_EQ(chosen.bits, 4);
  // Nothing measures changes from now on: it does not swing back.
  EXPECT_EQ(next_choice({}, chosen, path_of(5, std::nullopt)).choice, chosen);
}

TEST(Choice, SendsValuesIfNoSampleIsUsedAgain) {
  ChoiceLimits limits;
  limits.has_cache = false;
  EXPECT_EQ(first_choice(limits).encoding, Encoding::fixed);
  EXPECT_EQ(next_choice(limits, first_choice(limits), path_of(5)).choice.encoding, Encoding::fixed);
}

TEST(Choice, PrefersPlainBitsToAChangeAtFewerWhenTheyAreExacter) {
  // At 0.95 a change is hardly smaller, and no choice begins with it.
  const Choice now{Encoding::fixed, 4, 8};
  const Choice chosen = next_choice({}, now, path_of(13, 0.95)).choice;
  EXPECT_EQ(chosen.encoding, Encoding::fixed);
  EXPECT_EQ(chosen.bits, 8);
}

TEST(Choice, DoesNotOscillateWithTenPercentNoise) {
  constexpr std::uint64_t kSeed = 7;
  std::mt19937_64 draw(kSeed);
  std::uniform_real_distribution<double> noise(0.9, 1.1);
  for (double bits = 0.5; bits < 40; bits *= 1.07) {
    Choice now = first_choice({});
    int switches = 0;
    for (int step = 0; step < 200; ++step) {
      const Choice next = next_choice({}, now, path_of(bits * noise(draw))).choice;
      // The first steps may look for their place.
      if (step >= 20 && next != now) ++switches;
      now = next;
    }
    EXPECT_EQ(switches, 0) << bits << " bits per value, seed " << kSeed;
  }
}

TEST(Choice, ExplainsDecisionInOneSentence) {
  const Decision decision = next_choice({}, {Encoding::raw, 16, 8}, path_of(5));
  EXPECT_EQ(
      decision.why,
      "delta at 4 bits (8 on a cache miss): 516 kB a step fit into the 625 kB that 5.0 Mbit/s "
      "carry beside 1.000 s of compute, changes are 0.30 of the values");
}

// Gaussian gradients of which each row's sum is as large as its tokens' noise alone would make it:
// errors count as they are.
GradientMeasure plain_gradient(std::optional<double> error = std::nullopt, double bias = 0) {
  return {1, 1, 1, error, bias};
}

TEST(Choice, NeedsTheBitsThatHideInTheNoiseOfAGradient) {
  const Choice raw{Encoding::raw, 16, 8};
  EXPECT_EQ(enough_bits(plain_gradient(), raw, 2), 4);
  EXPECT_EQ(enough_bits(plain_gradient(), raw, 5), 5) << "never below the limit";
  // Rows that agree leave their errors little of what they share, and those that cancel much.
  EXPECT_EQ(enough_bits({20, 1, 1, std::nullopt, 0}, raw, 2), 2);
  EXPECT_EQ(enough_bits({0.05, 1, 1, std::nullopt, 0}, raw, 2), 6);
  EXPECT_EQ(enough_bits({1e-9, 1, 1, std::nullopt, 0}, raw, 2), 8);
}

TEST(Choice, ReckonsWithTheMeasuredErrorOfAGradient) {
  const Choice four{Encoding::fixed, 4, 8};
  EXPECT_EQ(enough_bits(plain_gradient(0.10), four, 2), 4);
  EXPECT_EQ(enough_bits(plain_gradient(0.18), four, 2), 5) << "outliers";
  EXPECT_NEAR(added_noise(plain_gradient(0.18), four, 4), 0.18 * 0.18, 1e-6);
}

// A bias of two percent is an error of less than a thousandth, and what a hundred steps add up.
TEST(Choice, NeedsMoreBitsForABiasThanForAnErrorOfItsSize) {
  const Choice four{Encoding::fixed, 4, 8};
  EXPECT_EQ(enough_bits(plain_gradient(0.10, 0.02), four, 2), 5);
  EXPECT_NEAR(added_noise(plain_gradient(0.10, 0.02), four, 4), 0.01 + 100 * 0.02 * 0.02, 1e-6);
  // Without a signal there is nothing to be shortened.
  EXPECT_EQ(enough_bits({1, 0, 1, 0.10, 0.02}, four, 2), 4);
}

TEST(Choice, SendsGradientsInEnoughBitsHoweverSlowThePath) {
  ChoiceLimits limits;
  limits.has_cache = false;
  limits.fixed_bits = 2;
  Measured measured = path_of(0.1, std::nullopt);
  EXPECT_EQ(next_choice(limits, first_choice(limits), measured).choice.bits, 2);
  measured.gradient = plain_gradient();
  const Decision decision = next_choice(limits, {Encoding::fixed, 2, 8}, measured);
  EXPECT_EQ(decision.choice, (Choice{Encoding::fixed, 4, 8}));
  EXPECT_NE(decision.why.find("1.0 % are added to the gradient's own noise"), std::string::npos)
      << decision.why;
  // On a path with room it takes the exactest, as always.
  measured.bytes_per_second = 1e9;
  EXPECT_EQ(next_choice(limits, decision.choice, measured).choice.encoding, Encoding::raw);
}

TEST(Choice, OfGradientsDoesNotOscillateWithTenPercentNoise) {
  constexpr std::uint64_t kSeed = 8;
  std::mt19937_64 draw(kSeed);
  std::uniform_real_distribution<double> noise(0.9, 1.1);
  ChoiceLimits limits;
  limits.has_cache = false;
  limits.fixed_bits = 2;
  for (double size = 0.01; size < 20; size *= 1.07) {
    Choice now = first_choice(limits);
    int switches = 0;
    for (int step = 0; step < 200; ++step) {
      Measured measured = path_of(0.1, std::nullopt);
      measured.gradient = {size * noise(draw), 1, 1, std::nullopt, 0};
      const Choice next = next_choice(limits, now, measured).choice;
      if (step >= 20 && next != now) ++switches;
      now = next;
    }
    // A rare measurement may take it to more bits; there it stays.
    EXPECT_LE(switches, 1) << "noise " << size << ", seed " << kSeed;
  }
}

TEST(Choice, GivesCacheMissesTheBitsThatFit) {
  ChoiceLimits limits;
  limits.first_bits = 4;
  EXPECT_EQ(next_choice(limits, {Encoding::raw, 16, 4}, path_of(9.1)).choice.first_bits, 6);
}

}  // namespace
}  // namespace strait::codec

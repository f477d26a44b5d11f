#include "framework/codec/choice.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace strait::codec {
namespace {

using Way = Choice::Way;

// A million values a step and a second of compute: bytes a second are bits a value / 8e-6.
Measured path_of(double bits_per_value, std::optional<double> change = 0.3) {
  return {bits_per_value * 1e6 / 8, 1.0, 1e6, change};
}

TEST(Choice, StaysUnchangedBeforeFirstMeasurement) {
  const Choice now{Way::delta, 4, 8};
  EXPECT_EQ(next_choice({}, now, {}).choice, now);
}

TEST(Choice, TakesTheBestThatFitsBesideCompute) {
  const Choice now{Way::delta, 4, 8};
  EXPECT_EQ(next_choice({}, now, path_of(100)).choice.way, Way::raw);
  EXPECT_EQ(next_choice({}, now, path_of(13)).choice, (Choice{Way::delta, 8, 8}));
  EXPECT_EQ(next_choice({}, now, path_of(9)).choice, (Choice{Way::delta, 6, 8}));
  EXPECT_EQ(next_choice({}, now, path_of(5)).choice, now);
}

TEST(Choice, NeverGoesBelowTheLimitsHoweverSlowThePath) {
  for (const int least : {2, 3, 4, 6}) {
    ChoiceLimits limits;
    limits.least_bits = least;
    limits.fixed_bits = std::max(4, least);
    const Choice chosen = next_choice(limits, first_choice(limits), path_of(0.1)).choice;
    EXPECT_EQ(chosen, (Choice{Way::delta, least, 8}));
  }
}

TEST(Choice, SendsValuesIfChangesAreNotSmaller) {
  const Choice now{Way::delta, 4, 8};
  const Choice chosen = next_choice({}, now, path_of(5, 1.2)).choice;
  EXPECT_EQ(chosen.way, Way::fixed);
  EXPECT_EQ(chosen.bits, 4);
  // Nothing measures changes from now on: it does not swing back.
  EXPECT_EQ(next_choice({}, chosen, path_of(5, std::nullopt)).choice, chosen);
}

TEST(Choice, SendsValuesIfNoSampleIsUsedAgain) {
  ChoiceLimits limits;
  limits.has_cache = false;
  EXPECT_EQ(first_choice(limits).way, Way::fixed);
  EXPECT_EQ(next_choice(limits, first_choice(limits), path_of(5)).choice.way, Way::fixed);
}

TEST(Choice, PrefersPlainBitsToAChangeAtFewerWhenTheyAreExacter) {
  // At 0.95 a change is hardly smaller, and nobody begins with it.
  const Choice now{Way::fixed, 4, 8};
  const Choice chosen = next_choice({}, now, path_of(13, 0.95)).choice;
  EXPECT_EQ(chosen.way, Way::fixed);
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
  const Decision decision = next_choice({}, {Way::raw, 16, 8}, path_of(5));
  EXPECT_EQ(
      decision.why,
      "delta at 4 bits (8 on a cache miss): 516 kB a step fit into the 625 kB that 5.0 Mbit/s "
      "carry beside 1.000 s of compute, changes are 0.30 of the values");
}

TEST(Choice, GivesCacheMissesTheBitsThatFit) {
  ChoiceLimits limits;
  limits.first_bits = 4;
  EXPECT_EQ(next_choice(limits, {Way::raw, 16, 4}, path_of(9.1)).choice.first_bits, 6);
}

}  // namespace
}  // namespace strait::codec

#include "framework/codec/choice.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <random>

namespace strait::codec::choice_test {
namespace {

using Encoding = Choice::Encoding;

// A million values a step in 32 messages, and a second of compute: bytes a second are bits a value
// / 8e-6.
Measured path_of(double bits_per_value, std::optional<double> change = 0.3) {
  return {bits_per_value * 1e6 / 8, 1.0, 1e6, 32, change, std::nullopt};
}

Choice chosen(const ChoiceLimits& limits, const Choice& now, const Measured& measured) {
  return next_choice(limits, now, measured).value().choice;
}

TEST(Choice, IsNotMadeBeforeFirstMeasurement) {
  EXPECT_EQ(next_choice({}, {Encoding::delta, 4, 8}, {}), std::nullopt);
}

TEST(Choice, TakesTheBestThatFitsBesideCompute) {
  const Choice now{Encoding::delta, 4, 8};
  EXPECT_EQ(chosen({}, now, path_of(100)).encoding, Encoding::raw);
  EXPECT_EQ(chosen({}, now, path_of(13)), (Choice{Encoding::delta, 8, 8}));
  EXPECT_EQ(chosen({}, now, path_of(9)), (Choice{Encoding::delta, 6, 8}));
  EXPECT_EQ(chosen({}, now, path_of(5)), now);
}

TEST(Choice, NeverGoesBelowTheLimitsHoweverSlowThePath) {
  for (const int least : {2, 3, 4, 6}) {
    ChoiceLimits limits;
    limits.least_bits = least;
    limits.fixed_bits = std::max(4, least);
    EXPECT_EQ(chosen(limits, first_choice(limits), path_of(0.1)),
              (Choice{Encoding::delta, least, 8}));
  }
}

TEST(Choice, SendsValuesIfChangesAreNotSmaller) {
  const Choice now{Encoding::delta, 4, 8};
  const Choice values = chosen({}, now, path_of(5, 1.2));
  EXPECT_EQ(values, (Choice{Encoding::fixed, 4, 8}));
  // Nothing measures changes from now on: it does not swing back.
  EXPECT_EQ(chosen({}, values, path_of(5, std::nullopt)), values);
}

TEST(Choice, SendsValuesIfNoSampleIsUsedAgain) {
  ChoiceLimits limits;
  limits.has_cache = false;
  EXPECT_EQ(first_choice(limits).encoding, Encoding::fixed);
  EXPECT_EQ(chosen(limits, first_choice(limits), path_of(5)).encoding, Encoding::fixed);
}

TEST(Choice, PrefersPlainBitsToAChangeAtFewerWhenTheyAreExacter) {
  // At 0.95 a change is hardly smaller, and no choice begins with it.
  const Choice now{Encoding::fixed, 4, 8};
  EXPECT_EQ(chosen({}, now, path_of(13, 0.95)), (Choice{Encoding::fixed, 8, 8}));
}

TEST(Choice, DoesNotOscillateWithTenPercentNoise) {
  constexpr std::uint64_t kSeed = 7;
  std::mt19937_64 draw(kSeed);
  std::uniform_real_distribution<double> noise(0.9, 1.1);
  for (double bits = 0.5; bits < 400; bits *= 1.07) {
    for (const double messages : {1, 4, 32}) {
      Choice now = first_choice({});
      int switches = 0;
      for (int step = 0; step < 200; ++step) {
        Measured measured = path_of(bits * noise(draw));
        measured.messages_per_step = messages;
        const Choice next = chosen({}, now, measured);
        // The first steps may look for their place.
        if (step >= 20 && next != now) ++switches;
        now = next;
      }
      // A rare measurement may take it to more bits; there it stays.
      EXPECT_LE(switches, 1) << bits << " bits per value, " << messages << " messages, seed "
                             << kSeed;
    }
  }
}

TEST(Choice, ExplainsDecisionWithThePricesOfOthers) {
  const Choice raw{Encoding::raw, 16, 8};
  EXPECT_EQ(next_choice({}, raw, path_of(5)).value().why,
            "delta at 4 bits (8 on a cache miss), 0.825 s a step (6 bits 1.23 s, bfloat16 3.2 s) "
            "at 5 Mbit/s with 1 s of compute; change 30 %, expected error 3 %");
  EXPECT_EQ(next_choice({}, raw, path_of(400, std::nullopt)).value().why,
            "raw bfloat16, 40 ms a step (6 bits 15.3 ms) at 400 Mbit/s with 1 s of compute");
  ChoiceLimits usual;
  usual.least_bits = usual.fixed_bits = 6;
  EXPECT_EQ(next_choice(usual, first_choice(usual), path_of(0.84)).value().why,
            "delta at 6 bits (8 on a cache miss), 7.29 s a step (bfloat16 19 s) at 0.84 Mbit/s "
            "with 1 s of compute; change 30 %, expected error 0.78 %");
}

// Gaussian gradients. Each row's sum is as large as its tokens' noise alone would make it:
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
  EXPECT_EQ(chosen(limits, first_choice(limits), measured).bits, 2);
  measured.gradient = plain_gradient();
  const Decision decision = next_choice(limits, {Encoding::fixed, 2, 8}, measured).value();
  EXPECT_EQ(decision.choice, (Choice{Encoding::fixed, 4, 8}));
  EXPECT_NE(decision.why.find("1 % are added to the gradient's own noise"), std::string::npos)
      << decision.why;
  // On a path with room it takes the exactest, as always.
  measured.bytes_per_second = 1e9;
  EXPECT_EQ(chosen(limits, decision.choice, measured).encoding, Encoding::raw);
}

TEST(Choice, SendsNoGradientInMoreThanTheUsualBitsIfItsTransferIsNotHidden) {
  ChoiceLimits limits;
  limits.has_cache = false;
  Measured measured = path_of(0.1, std::nullopt);
  measured.gradient = {1e-9, 1, 1, std::nullopt, 0};  // its noise hides nothing
  EXPECT_EQ(chosen(limits, first_choice(limits), measured), (Choice{Encoding::fixed, 6, 8}));
}

// With few messages the receiver waits for a large share of the transfer, however wide the path.
TEST(Choice, CountsTheTransferOfOneMessageThatNothingHides) {
  const Choice now{Encoding::delta, 4, 8};
  for (const auto& [messages, expected] :
       {std::pair(1.0, 6), std::pair(4.0, 7), std::pair(16.0, 8), std::pair(64.0, 16)}) {
    Measured measured = path_of(30);
    measured.messages_per_step = messages;
    EXPECT_EQ(chosen({}, now, measured).bits, expected) << messages;
  }
}

// Of everything that may be measured, and whatever was chosen before: no choice costs more seconds
// than the usual bits, but for most_cost where compute hides the transfer.
TEST(Choice, NeverCostsMoreSecondsThanTheUsualBits) {
  constexpr std::uint64_t kSeed = 9;
  std::mt19937_64 random(kSeed);
  const auto whole = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  const auto exponent = [&](double low, double high) {
    return std::pow(10, std::uniform_real_distribution<double>(low, high)(random));
  };
  const auto maybe = [&](double value) {
    return whole(0, 1) == 1 ? std::optional(value) : std::nullopt;
  };
  int more = 0;
  for (int i = 0; i < 200'000; ++i) {
    ChoiceLimits limits;
    limits.least_bits = whole(2, 8);
    limits.first_bits = std::array{3, 4, 5, 6, 7, 8, 16}.at(static_cast<std::size_t>(whole(0, 6)));
    limits.fixed_bits = std::max(limits.least_bits, whole(2, 4));
    limits.usual_bits = std::max(6, limits.least_bits);
    limits.has_cache = whole(0, 1) == 1;
    limits.group = 32 << whole(0, 2);
    limits.most_cost /= whole(1, 16);
    Measured measured;
    measured.bytes_per_second = exponent(2, 10);
    measured.compute_seconds = exponent(-4, 2);
    measured.values_per_step = exponent(3, 9);
    measured.messages_per_step = whole(1, 64);
    measured.change = maybe(exponent(-2, 0.3));
    if (whole(0, 1) == 1) {
      measured.gradient = {exponent(-9, 3), exponent(-9, 3), 1, maybe(exponent(-3, 0)),
                           exponent(-6, -1)};
    }
    Choice now{static_cast<Encoding>(whole(0, 2)), whole(2, 8),
               whole(0, 1) == 1 ? 16 : whole(3, 8)};
    if (now.encoding == Encoding::raw) now.bits = 16;
    now.first_bits = std::max(now.first_bits, limits.first_bits);
    const Choice next = chosen(limits, now, measured);
    const auto check = [&](int bits, int usual_bits) {
      const double bytes = step_bytes(limits, bits, measured.values_per_step);
      const double usual = step_bytes(limits, usual_bits, measured.values_per_step);
      if (bytes <= usual) return;
      ++more;
      ASSERT_LE(bytes / measured.bytes_per_second, measured.compute_seconds) << "not hidden";
      const double most = (1 + limits.most_cost) * step_seconds(measured, usual);
      ASSERT_LE(step_seconds(measured, bytes), most);
    };
    SCOPED_TRACE(testing::Message() << describe(next) << ", input " << i << " of seed " << kSeed);
    check(next.bits, limits.usual_bits);
    if (next.encoding == Encoding::delta) check(next.first_bits, limits.first_bits);
    if (testing::Test::HasFatalFailure()) return;
  }
  EXPECT_GT(more, 10'000) << "on wide paths more bits are free";
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
      const Choice next = chosen(limits, now, measured);
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
  const Choice wide = chosen(limits, {Encoding::raw, 16, 4}, path_of(9.1));
  EXPECT_EQ(wide.first_bits, 6);
  // Not for ever: on a path that has become slow they are the user's again.
  EXPECT_EQ(chosen(limits, wide, path_of(9.1)), wide);
  EXPECT_EQ(chosen(limits, wide, path_of(0.5)).first_bits, 4);
}

}  // namespace
}  // namespace strait::codec::choice_test

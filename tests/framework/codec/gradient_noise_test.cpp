#include "framework/codec/gradient_noise.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <limits>

#include "tests/framework/codec/two_ends.h"

namespace strait::codec::gradient_noise_test {
namespace {

constexpr std::int64_t kTokens = 16;
constexpr std::int64_t kWidth = 128;
constexpr std::int64_t kRows = 4;
constexpr std::int64_t kSteps = 200;
constexpr double kShared = 0.1;  // of every token's gradient, added to noise of unit variance

at::Tensor gradients_of(std::int64_t step, std::int64_t rows) {
  return random_values({rows, kTokens, kWidth}, static_cast<std::uint64_t>(step)) + kShared;
}

// Steps of two micro-batches through an encoder that measures.
Traffic sent(at::ScalarType type, const Choice& choice) {
  SampleEncoderOptions options;
  options.choice = choice;
  options.direction = Direction::backward;
  options.choose = [&](store::Step, const Traffic&) { return choice; };
  TwoEnds ends(options, {});
  for (std::int64_t step = 0; step <= kSteps; ++step) {
    const at::Tensor values = gradients_of(step, kRows).to(type);
    for (std::int32_t micro_batch = 0; micro_batch < 2; ++micro_batch) {
      ends.pass({full_rows(store::Step{step}, micro_batch, kTokens, kWidth,
                           {2 * micro_batch, 2 * micro_batch + 1}),
                 values.narrow(0, std::int64_t{2} * micro_batch, 2)});
    }
  }
  return ends.encoder().traffic();
}

TEST(GradientNoise, IsThatOfTheSumOverTheRowsOfAStep) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    for (const Choice& choice :
         {Choice{Choice::Encoding::fixed, 4, 8}, Choice{Choice::Encoding::raw, 16}}) {
      const Traffic traffic = sent(type, choice);
      constexpr double kValues = kRows * kTokens * kWidth;
      constexpr double kSignal = kShared * kShared * kRows * kTokens * kValues;
      // The last step has not ended.
      EXPECT_NEAR(traffic.noise_squares / kSteps, kValues, 0.03 * kValues);
      EXPECT_NEAR(traffic.signal_squares / kSteps, kSignal, 0.1 * kSignal);
      EXPECT_NEAR(traffic.gradient_squares / kSteps, kValues * (1 + kShared * kShared),
                  0.01 * kValues);
    }
  }
}

TEST(GradientNoise, FindsNoBiasInWhatIsEncoded) {
  for (const int bits : {2, 3, 4, 6, 8}) {
    const Traffic traffic = sent(at::kFloat, {Choice::Encoding::fixed, bits, 8});
    EXPECT_GT(traffic.compared_squares, 0);
    EXPECT_NEAR(traffic.kept_squares / traffic.compared_squares, 1, 0.003) << bits << " bits";
  }
  EXPECT_EQ(sent(at::kFloat, {Choice::Encoding::raw, 16}).compared_squares, 0);
}

TEST(GradientNoise, SeesARowThatCameOutShorter) {
  GradientNoise noise;
  noise.begin_step();
  const at::Tensor row = gradients_of(0, 1)[0];
  noise.compare(row, 0.9 * row);
  EXPECT_FALSE(noise.wants_comparison());
  Traffic traffic;
  noise.add_to(traffic);
  EXPECT_NEAR(traffic.kept_squares / traffic.compared_squares, 0.9, 1e-4);
}

TEST(GradientNoise, SaysNothingOfOneRowOrOfRowsThatAreNotFinite) {
  GradientNoise noise;
  at::Tensor broken = gradients_of(0, 1)[0];
  broken[3][5] = std::numeric_limits<float>::quiet_NaN();
  for (std::int64_t step = 0; step < 4; ++step) {
    noise.begin_step();
    noise.add(gradients_of(step, 1)[0]);
    noise.add(broken);
    noise.compare(broken, broken);
    EXPECT_TRUE(noise.wants_comparison());
  }
  Traffic traffic;
  noise.add_to(traffic);
  EXPECT_EQ(traffic, Traffic());
}

}  // namespace
}  // namespace strait::codec::gradient_noise_test

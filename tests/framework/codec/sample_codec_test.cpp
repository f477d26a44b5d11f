#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "framework/codec/message.h"
#include "tests/framework/codec/two_ends.h"

namespace strait::codec::sample_codec_test {
namespace {

constexpr std::int64_t kTokens = 6;
constexpr std::int64_t kWidth = 144;  // two groups and a quarter
constexpr std::int64_t kSamples = 8;

ActivationCacheOptions roomy_cache() {
  ActivationCacheOptions options;
  options.row_tokens = kTokens;
  options.width = kWidth;
  options.memory_bytes = 1 << 20;
  options.order = shuffled_epochs(kSamples, 2, 5);
  options.last = store::Step{1000};
  return options;
}

SampleEncoderOptions sending(Choice::Encoding encoding, int bits, int first_bits = 8) {
  SampleEncoderOptions options;
  options.choice = {encoding, bits, first_bits};
  return options;
}

Batch batch_of(std::int64_t step, const std::vector<std::int64_t>& samples,
               const at::Tensor& values) {
  return {full_rows(store::Step{step}, 0, kTokens, kWidth, samples), values};
}

double relative_error(const at::Tensor& value, const at::Tensor& truth) {
  return ((value - truth).norm() / truth.norm()).item<double>();
}

TEST(SampleCodec, RawRowIsBfloat16) {
  TwoEnds ends(sending(Choice::Encoding::raw, 16), {});
  const at::Tensor values = random_values({2, kTokens, kWidth}, 1);
  EXPECT_TRUE(
      at::equal(ends.pass(batch_of(0, {3, 4}, values)), values.to(at::kBFloat16).to(at::kFloat)));
  EXPECT_EQ(ends.last_payload(), 3U + 2 * (3 + 2 * kTokens * kWidth));
}

TEST(SampleCodec, DocumentedExampleHasDocumentedBytes) {
  auto options = roomy_cache();
  options.width = 128;
  TwoEnds ends(sending(Choice::Encoding::delta, 4), options);
  for (std::int64_t step = 0; step < 2; ++step) {
    ends.pass(
        {full_rows(store::Step{step}, 0, kTokens, 128, {40}), random_values({1, kTokens, 128}, 7)});
    EXPECT_EQ(ends.last_payload(), step == 0 ? 792U : 416U);
  }
}

TEST(SampleCodec, EachEncodingHasTheErrorOfItsBits) {
  double before = 1;
  for (int bits = 2; bits <= 8; ++bits) {
    SampleEncoderOptions options = sending(Choice::Encoding::fixed, bits);
    TwoEnds ends(options, {});
    const at::Tensor values = random_values({2, kTokens, kWidth}, 2);
    const double error = relative_error(ends.pass(batch_of(0, {0, 1}, values)), values);
    EXPECT_LT(error, before * 0.7) << bits << " bits";
    EXPECT_GT(error, 0.2 / (1 << bits)) << bits << " bits";
    const Traffic traffic = ends.encoder().traffic();
    EXPECT_NEAR(std::sqrt(traffic.error_squares / traffic.value_squares), error, 1e-4);
    before = error;
  }
  EXPECT_LT(before, 0.01);
}

// A value in every group is far above the others, as in gradients of a fine-tune.
TEST(SampleCodec, GradientsOfFewBitsAreRotated) {
  const auto pass = [](Direction direction, int bits, double& error) {
    SampleEncoderOptions options = sending(Choice::Encoding::fixed, bits);
    options.direction = direction;
    TwoEnds ends(options, {});
    at::Tensor values = random_values({2, kTokens, kWidth}, 2);
    values.slice(2, 0, kWidth, 64).mul_(30);
    error = relative_error(ends.pass(batch_of(0, {0, 1}, values)), values);
    return ends.last_payload();
  };
  for (int bits = 2; bits <= 8; ++bits) {
    double forward_error = 0;
    double backward_error = 0;
    const std::size_t forward = pass(Direction::forward, bits, forward_error);
    const std::size_t backward = pass(Direction::backward, bits, backward_error);
    if (bits > 4) {
      EXPECT_EQ(backward, forward) << bits << " bits";
      continue;
    }
    constexpr std::size_t kFlagBytes = (kWidth / 64 + 7) / 8;  // of a token
    EXPECT_EQ(backward, forward + 2 * kTokens * kFlagBytes) << bits << " bits";
    EXPECT_LT(backward_error, 0.8 * forward_error) << bits << " bits";
  }
}

TEST(SampleCodec, AChangeIsSentMoreExactlyThanAValueAtTheSameBits) {
  TwoEnds ends(sending(Choice::Encoding::delta, 2), roomy_cache());
  TwoEnds plain(sending(Choice::Encoding::fixed, 2), {});
  const at::Tensor values = random_values({2, kTokens, kWidth}, 3);
  ends.pass(batch_of(0, {0, 1}, values));
  const at::Tensor moved = values + 0.1 * random_values({2, kTokens, kWidth}, 4);
  const double delta_error = relative_error(ends.pass(batch_of(1, {0, 1}, moved)), moved);
  const double plain_error = relative_error(plain.pass(batch_of(1, {0, 1}, moved)), moved);
  EXPECT_LT(delta_error, plain_error / 5);
  const Traffic traffic = ends.encoder().traffic();
  EXPECT_EQ(traffic.hits, 2U);
  EXPECT_EQ(traffic.cache_misses, 2U);
  EXPECT_NEAR(std::sqrt(traffic.change_squares / traffic.changed_value_squares), 0.1, 0.02);
}

TEST(SampleCodec, AGradientIsSentAsAChangeOnlyWhereItIsNearItsLast) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    SampleEncoderOptions options = sending(Choice::Encoding::delta, 2, 4);
    options.direction = Direction::backward;
    TwoEnds ends(options, roomy_cache());
    const auto send = [&](std::int64_t step, const at::Tensor& rows) {
      const double error = relative_error(ends.pass(batch_of(step, {0, 1}, rows.to(type))), rows);
      EXPECT_EQ(ends.last_missing(), 0U);
      return error;
    };
    const at::Tensor first = random_values({2, kTokens, kWidth}, 3);
    EXPECT_NEAR(send(0, first), 0.11, 0.02) << "values, of four bits";
    // Sample 0 stays near, sample 1 is another one.
    at::Tensor second = first + 0.2 * random_values({2, kTokens, kWidth}, 4);
    second[1] = random_values({kTokens, kWidth}, 5);
    send(1, second);
    EXPECT_EQ(ends.encoder().traffic().hits, 1U);
    EXPECT_EQ(ends.encoder().traffic().cache_misses, 3U);
    // Both are: what they are from their last ones is smaller than four bits of them are wrong.
    const std::size_t bytes = ends.last_payload();
    EXPECT_LT(send(2, second + 0.1 * random_values({2, kTokens, kWidth}, 6)), 0.07);
    EXPECT_EQ(ends.encoder().traffic().hits, 3U);
    EXPECT_LT(ends.last_payload(), bytes);
    EXPECT_EQ(ends.decoder().traffic().hits, 3U);
  }
}

// Over many samples: a change of a gradient is not cut off, for there is no later one to hold it.
TEST(SampleCodec, AChangeOfAGradientIsNotShorterThanItIs) {
  for (const auto direction : {Direction::forward, Direction::backward}) {
    SampleEncoderOptions options = sending(Choice::Encoding::delta, 2, 8);
    options.direction = direction;
    TwoEnds ends(options, roomy_cache());
    double product = 0;
    double square = 0;
    for (std::int64_t round = 0; round < 200; ++round) {
      const auto seed = static_cast<std::uint64_t>(round);
      const at::Tensor first = random_values({1, kTokens, kWidth}, 2 * seed);
      const at::Tensor known = ends.pass(batch_of(2 * round, {round % kSamples}, first)).clone();
      const at::Tensor change = 0.3 * random_values({1, kTokens, kWidth}, 2 * seed + 1);
      const at::Tensor read =
          ends.pass(batch_of(2 * round + 1, {round % kSamples}, known + change));
      product += at::dot((read - known).flatten(), change.flatten()).item<double>();
      square += at::dot(change.flatten(), change.flatten()).item<double>();
    }
    if (direction == Direction::backward) {
      EXPECT_NEAR(product / square, 1, 0.01);
    } else {
      EXPECT_LT(product / square, 0.95) << "clipped: the rest is in the next change";
    }
  }
}

TEST(SampleCodec, CachedRowsDoNotDriftFromConstantInput) {
  TwoEnds ends(sending(Choice::Encoding::delta, 4), roomy_cache());
  const at::Tensor values = random_values({1, kTokens, kWidth}, 5);
  double error = 1;
  for (std::int64_t step = 0; step < 60; ++step) {
    error = relative_error(ends.pass(batch_of(step, {1}, values)), values);
  }
  EXPECT_LT(error, 0.004);
}

TEST(SampleCodec, CachesBfloat16MissAsReceiverDecodesIt) {
  const at::Tensor values = random_values({1, kTokens, kWidth}, 6);
  TwoEnds ends(sending(Choice::Encoding::delta, 4, 16), roomy_cache());
  const at::Tensor first = ends.pass(batch_of(0, {1}, values));
  EXPECT_TRUE(at::equal(first, values.to(at::kBFloat16).to(at::kFloat)));
  EXPECT_EQ(entries_of(*ends.encoder().cache()), entries_of(*ends.decoder().cache()));
  // Sent as it is remembered, a change is nothing.
  EXPECT_TRUE(at::equal(ends.pass(batch_of(1, {1}, first)), first));
  EXPECT_EQ(ends.encoder().traffic().hits, 1U);
}

TEST(SampleCodec, NarrowTensorsKeepTheirType) {
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf, at::kFloat}) {
    TwoEnds ends(sending(Choice::Encoding::delta, 4), roomy_cache(), type);
    for (std::int64_t step = 0; step < 3; ++step) {
      const at::Tensor values = random_values({2, kTokens, kWidth}, 8).to(type);
      const at::Tensor result = ends.pass(batch_of(step, {1, 2}, values));
      EXPECT_EQ(result.scalar_type(), type);
      EXPECT_LT(relative_error(result.to(at::kFloat), values.to(at::kFloat)), 0.02);
    }
  }
}

TEST(SampleCodec, SendsNonContiguousTensors) {
  const at::Tensor values = random_values({2, kWidth, kTokens}, 9).transpose(1, 2);
  TwoEnds straight(sending(Choice::Encoding::fixed, 4), {});
  TwoEnds turned(sending(Choice::Encoding::fixed, 4), {});
  ASSERT_FALSE(values.is_contiguous());
  EXPECT_TRUE(at::equal(turned.pass(batch_of(0, {0, 1}, values)),
                        straight.pass(batch_of(0, {0, 1}, values.contiguous()))));
}

TEST(SampleCodec, PaddingIsNotSentAndDecodesAsZeros) {
  TwoEnds ends(sending(Choice::Encoding::delta, 4), roomy_cache());
  for (std::int64_t step = 0; step < 2; ++step) {
    Batch batch = batch_of(step, {0, 1, 2}, random_values({3, kTokens, kWidth}, 10));
    batch.header.rows.rows[0].documents = {2, 1};
    batch.header.rows.rows[1].documents = {};
    const at::Tensor result = ends.pass(batch);
    EXPECT_EQ(result[0].slice(0, 3).abs().max().item<float>(), 0);
    EXPECT_EQ(result[1].abs().max().item<float>(), 0);
    EXPECT_LT(relative_error(result[2], batch.values[2]), 0.02);
    EXPECT_LT(relative_error(result[0].slice(0, 0, 3), batch.values[0].slice(0, 0, 3)), 0.02);
  }
  EXPECT_EQ(ends.encoder().traffic().hits, 2U);
}

TEST(SampleCodec, SampleOfOtherLengthIsCacheMiss) {
  TwoEnds ends(sending(Choice::Encoding::delta, 4), roomy_cache());
  Batch batch = batch_of(0, {0}, random_values({1, kTokens, kWidth}, 11));
  ends.pass(batch);
  batch.header.step = store::Step{1};
  batch.header.rows.rows[0].documents = {kTokens - 1};
  ends.pass(batch);
  EXPECT_EQ(ends.encoder().traffic().cache_misses, 2U);
  EXPECT_EQ(entries_of(*ends.encoder().cache()), entries_of(*ends.decoder().cache()));
}

// A copy with something in it that no quantiser can take.
at::Tensor spoiled(const at::Tensor& values, float with) {
  at::Tensor copy = values.clone();
  copy[0][2][70] = with;  // in the token's second group
  return copy;
}

TEST(SampleCodec, NonFiniteValuesAreSentButNeverCached) {
  const at::Tensor values = random_values({1, kTokens, kWidth}, 12);
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity(), 2e36F}) {
    TwoEnds ends(sending(Choice::Encoding::delta, 4), roomy_cache());
    ends.pass(batch_of(0, {1}, values));
    const Entries before = entries_of(*ends.decoder().cache());
    const at::Tensor result = ends.pass(batch_of(1, {1}, spoiled(values, bad)));
    EXPECT_TRUE(result[0][2].slice(0, 64, 128).isnan().all().item<bool>());
    EXPECT_EQ(result.isnan().sum().item<std::int64_t>(), 64);
    EXPECT_EQ(ends.encoder().traffic().refused_rows, 1U);
    const Entries after = entries_of(*ends.decoder().cache());
    EXPECT_EQ(entries_of(*ends.encoder().cache()), after);
    const std::size_t group = (2 * kWidth + 64) * 2;
    EXPECT_TRUE(std::equal(after.at(1).begin() + group, after.at(1).begin() + group + 128,
                           before.at(1).begin() + group));
    EXPECT_LT(relative_error(ends.pass(batch_of(2, {1}, values)), values), 0.01);
  }
}

TEST(SampleCodec, NonFiniteCacheMissStartsItsGroupFromZero) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const at::Tensor values = random_values({1, kTokens, kWidth}, 13);
  for (const int first_bits : {8, 16}) {
    TwoEnds ends(sending(Choice::Encoding::delta, 4, first_bits), roomy_cache());
    EXPECT_TRUE(ends.pass(batch_of(0, {1}, spoiled(values, nan))).isnan().any().item<bool>());
    EXPECT_EQ(entries_of(*ends.encoder().cache()), entries_of(*ends.decoder().cache()));
    for (std::int64_t step = 1; step < 5; ++step) {
      EXPECT_FALSE(ends.pass(batch_of(step, {1}, values)).isnan().any().item<bool>());
    }
    EXPECT_LT(relative_error(ends.pass(batch_of(5, {1}, values)), values), 0.01);
  }
}

TEST(SampleCodec, ChoiceIsRequestedOncePerStepAndReceiverFollows) {
  std::vector<std::int64_t> asked;
  SampleEncoderOptions options = sending(Choice::Encoding::raw, 16);
  options.choose = [&](store::Step step, const Traffic& traffic) {
    EXPECT_EQ(traffic.rows, 4 * asked.size());
    asked.push_back(number(step));
    switch (number(step) % 3) {
      case 0:
        return Choice{Choice::Encoding::delta, 4, 8};
      case 1:
        return Choice{Choice::Encoding::fixed, 3, 8};
      default:
        return Choice{Choice::Encoding::raw, 16, 8};
    }
  };
  TwoEnds ends(options, roomy_cache());
  const at::Tensor values = random_values({2, kTokens, kWidth}, 14);
  for (std::int64_t step = 0; step < 7; ++step) {
    const double expected = step % 3 == 0 ? 0.03 : step % 3 == 1 ? 0.3 : 0.003;
    for (std::int32_t micro_batch = 0; micro_batch < 2; ++micro_batch) {
      Batch batch = batch_of(step, {2 * micro_batch, 2 * micro_batch + 1}, values);
      batch.header.micro_batch = micro_batch;
      EXPECT_LT(relative_error(ends.pass(batch), values), expected);
      EXPECT_EQ(entries_of(*ends.encoder().cache()), entries_of(*ends.decoder().cache()));
    }
  }
  EXPECT_EQ(asked, (std::vector<std::int64_t>{0, 1, 2, 3, 4, 5, 6}));
}

TEST(SampleCodec, UnbiasedRoundingIsAFunctionOfKeyStepMicroBatchKindAndPlace) {
  SampleEncoderOptions options = sending(Choice::Encoding::fixed, 3);
  options.key = 77;
  const at::Tensor row = random_values({1, kTokens, kWidth}, 15);
  const at::Tensor values = row.expand({2, kTokens, kWidth}).contiguous();
  const auto result_of = [&](std::uint64_t key, std::int64_t step, std::int32_t micro_batch,
                             Kind kind) {
    options.key = key;
    TwoEnds ends(options, {});
    Batch batch = batch_of(step, {0, 1}, values);
    batch.header.micro_batch = micro_batch;
    batch.header.kind = kind;
    return ends.pass(batch).clone();
  };
  const at::Tensor first = result_of(77, 3, 1, Kind::forward);
  EXPECT_FALSE(at::equal(first[0], first[1]));
  EXPECT_TRUE(at::equal(first, result_of(77, 3, 1, Kind::forward)));
  EXPECT_FALSE(at::equal(first, result_of(78, 3, 1, Kind::forward)));
  EXPECT_FALSE(at::equal(first, result_of(77, 4, 1, Kind::forward)));
  EXPECT_FALSE(at::equal(first, result_of(77, 3, 2, Kind::forward)));
  EXPECT_FALSE(at::equal(first, result_of(77, 3, 1, Kind::backward)));
}

TEST(SampleCodec, BothEndsCountTheSame) {
  auto cache = roomy_cache();
  TwoEnds ends(sending(Choice::Encoding::delta, 4), cache);
  for (std::int64_t step = 0; step < 20; ++step) {
    ends.pass(batch_of(step, {step % 5, 5 + step % 3},
                       random_values({2, kTokens, kWidth}, static_cast<std::uint64_t>(step))));
  }
  const Traffic sent = ends.encoder().traffic();
  const Traffic received = ends.decoder().traffic();
  EXPECT_EQ(sent.rows, 40U);
  EXPECT_EQ(sent.cache_misses, 8U);
  EXPECT_EQ(sent.hits, 32U);
  EXPECT_EQ(sent.raw_bytes, 40U * kTokens * kWidth * 4);
  EXPECT_EQ(sent.cache_bytes, 8U * kTokens * kWidth * 2);
  EXPECT_EQ(received.rows, sent.rows);
  EXPECT_EQ(received.cache_misses, sent.cache_misses);
  EXPECT_EQ(received.hits, sent.hits);
  EXPECT_EQ(received.raw_bytes, sent.raw_bytes);
  EXPECT_EQ(received.payload_bytes, sent.payload_bytes);
  EXPECT_EQ(received.cache_bytes, sent.cache_bytes);
}

TEST(SampleCodec, RefusesEvaluationInTrainingCodecs) {
  TwoEnds ends(sending(Choice::Encoding::fixed, 4), {});
  Batch batch = batch_of(0, {0}, random_values({1, kTokens, kWidth}, 16));
  batch.header.evaluation = true;
  EXPECT_THROW(ends.pass(batch), std::logic_error);
}

}  // namespace
}  // namespace strait::codec::sample_codec_test

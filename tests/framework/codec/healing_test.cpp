#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "framework/codec/message.h"
#include "tests/framework/codec/two_ends.h"

namespace strait::codec::healing_test {
namespace {

constexpr std::int64_t kTokens = 5;
constexpr std::int64_t kWidth = 96;
constexpr std::int64_t kSamples = 6;
constexpr std::int64_t kPerStep = 2;

ActivationCacheOptions healing_cache() {
  ActivationCacheOptions options;
  options.row_tokens = kTokens;
  options.width = kWidth;
  options.memory_bytes = 1 << 20;
  options.order = shuffled_epochs(kSamples, kPerStep, 3);
  options.last = store::Step{100};
  return options;
}

SampleEncoderOptions four_bits() {
  SampleEncoderOptions options;
  options.choice = {Choice::Encoding::delta, 4, 8};
  return options;
}

Batch batch_at(std::int64_t step) {
  std::vector<std::int64_t> samples;
  for (const auto sample : healing_cache().order(store::Step{step})) {
    samples.push_back(number(sample));
  }
  const auto rows = std::ssize(samples);
  return {full_rows(store::Step{step}, 0, kTokens, kWidth, samples),
          random_values({rows, kTokens, kWidth}, 100 + static_cast<std::uint64_t>(step))};
}

TEST(Healing, DetectsFlippedBitAtReceiverAtNextUse) {
  const ActivationCacheOptions cache = healing_cache();
  for (const std::size_t bit : {0U, 13U, 14U, 500U, 3999U}) {
    TwoEnds sound(four_bits(), cache);
    TwoEnds spoiled(four_bits(), cache);
    for (std::int64_t step = 0; step < 12; ++step) {
      const Batch batch = batch_at(step);
      // One of the samples that this very step visits, and has been visited before.
      const std::int64_t sample = number(batch.header.rows.rows[1].sample);
      if (step == 7) {
        ASSERT_TRUE(flip_bit(*spoiled.decoder().cache(), sample, bit));
      }
      ASSERT_TRUE(at::equal(spoiled.pass(batch), sound.pass(batch))) << "step " << step;
      EXPECT_EQ(spoiled.last_missing(), step == 7 ? 1U : 0U);
    }
    EXPECT_EQ(spoiled.decoder().traffic().resends, 1U);
    EXPECT_EQ(spoiled.encoder().traffic().resends, 1U);
    EXPECT_EQ(sound.decoder().traffic().resends, 0U);
    EXPECT_EQ(entries_of(*spoiled.decoder().cache()), entries_of(*sound.decoder().cache()));
    EXPECT_EQ(entries_of(*spoiled.encoder().cache()), entries_of(*sound.encoder().cache()));
    EXPECT_GT(spoiled.encoder().traffic().payload_bytes, sound.encoder().traffic().payload_bytes);
    EXPECT_EQ(spoiled.encoder().traffic().payload_bytes, spoiled.decoder().traffic().payload_bytes);
  }
}

TEST(Healing, FlippedBitAtSenderBecomesCacheMiss) {
  for (const std::size_t bit : {0U, 13U, 14U, 500U, 3999U}) {
    TwoEnds ends(four_bits(), healing_cache());
    for (std::int64_t step = 0; step < 12; ++step) {
      const Batch batch = batch_at(step);
      if (step == 7) {
        ASSERT_TRUE(
            flip_bit(*ends.encoder().cache(), number(batch.header.rows.rows[1].sample), bit));
      }
      const at::Tensor error = ends.pass(batch) - batch.values;
      EXPECT_LT(error.norm().item<double>(), 0.2 * batch.values.norm().item<double>());
      EXPECT_EQ(ends.last_missing(), 0U);
      EXPECT_EQ(entries_of(*ends.encoder().cache()), entries_of(*ends.decoder().cache()));
    }
    EXPECT_EQ(ends.encoder().traffic().resends, 1U);
    EXPECT_EQ(ends.encoder().traffic().cache_misses, kSamples + 1U);
  }
}

TEST(Healing, RefillsReceiverThatLostItsCache) {
  const ActivationCacheOptions cache = healing_cache();
  TwoEnds sound(four_bits(), cache);
  TwoEnds ends(four_bits(), cache);
  for (std::int64_t step = 0; step < 3; ++step) {
    sound.pass(batch_at(step));
    ends.lose(batch_at(step));
  }
  for (std::int64_t step = 3; step < 9; ++step) {
    EXPECT_TRUE(at::equal(ends.pass(batch_at(step)), sound.pass(batch_at(step))));
    EXPECT_EQ(ends.last_missing(), step < 6 ? 2U : 0U);
  }
  EXPECT_EQ(ends.decoder().traffic().resends, static_cast<std::uint64_t>(kSamples));
  EXPECT_EQ(entries_of(*ends.decoder().cache()), entries_of(*sound.decoder().cache()));
}

TEST(Healing, RefusesResendOfRowsThatAreNotCached) {
  TwoEnds ends(four_bits(), healing_cache());
  const Batch batch = batch_at(0);
  ends.pass(batch);
  net::Frame frame;
  TensorHeader stranger = batch.header;
  stranger.rows.rows[0].sample = store::SampleId{kSamples + 7};
  EXPECT_THROW(ends.encoder().encode_whole(stranger, frame), CodecError);
  TensorHeader shorter = batch.header;
  shorter.rows.rows[0].documents = {kTokens - 1};
  EXPECT_THROW(ends.encoder().encode_whole(shorter, frame), CodecError);
  TensorHeader late = batch.header;
  late.step = store::Step{1};
  EXPECT_THROW(ends.encoder().encode_whole(late, frame), CodecError);
  TwoEnds without(four_bits(), {});
  EXPECT_THROW(without.encoder().encode_whole(batch.header, frame), CodecError);
  EXPECT_TRUE(frame.empty());
}

TEST(Healing, RefusesWholeRowsThatDoNotMatchRequest) {
  TwoEnds ends(four_bits(), healing_cache());
  const Batch batch = batch_at(0);
  const at::Tensor values = ends.pass(batch);
  net::Frame frame;
  ends.encoder().encode_whole(batch.header, frame);
  const std::vector<std::int64_t> places{0, 1};
  SampleDecoder& decoder = ends.decoder();
  for (std::size_t size = 0; size < frame.size(); ++size) {
    const std::span<const std::byte> cut(frame.data(), size);
    EXPECT_THROW(decoder.complete(batch.header, cut, places, values), CodecError) << size;
  }
  const std::vector<std::int64_t> one{0};
  EXPECT_THROW(decoder.complete(batch.header, frame, one, values), CodecError);
  const std::vector<std::int64_t> outside{0, 2};
  EXPECT_THROW(decoder.complete(batch.header, frame, outside, values), CodecError);
  TensorHeader late = batch.header;
  late.step = store::Step{1};
  EXPECT_THROW(decoder.complete(late, frame, places, values), CodecError);
  net::Frame other_kind = frame;
  other_kind[1] ^= std::byte{3};
  EXPECT_THROW(decoder.complete(batch.header, other_kind, places, values), CodecError);
  SampleDecoder without(at::kFloat, nullptr);
  EXPECT_THROW(without.complete(batch.header, frame, places, values), CodecError);
  const at::Tensor before = values.clone();
  decoder.complete(batch.header, frame, places, values);
  EXPECT_TRUE(at::equal(values, before));
}

}  // namespace
}  // namespace strait::codec::healing_test

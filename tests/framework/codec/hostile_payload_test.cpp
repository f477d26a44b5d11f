#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <random>

#include "framework/codec/message.h"
#include "framework/codec/sample_format.h"
#include "tests/framework/codec/two_ends.h"

namespace strait::codec::hostile_payload_test {
namespace {

constexpr std::int64_t kTokens = 3;
constexpr std::int64_t kWidth = 80;

ActivationCacheOptions exposed_cache(std::uint64_t rows = 20) {
  ActivationCacheOptions options;
  options.row_tokens = kTokens;
  options.width = kWidth;
  options.memory_bytes = rows * 512;
  options.order = shuffled_epochs(8, 2, 3);
  options.last = store::Step{100};
  return options;
}

// Messages of every sort, and a receiver that is where their sender was.
struct Sent {
  TensorHeader header;
  net::Frame payload;
};

std::vector<Sent> messages_of_every_sort() {
  SampleEncoderOptions options;
  options.choose = [](store::Step step, const Traffic&) {
    constexpr std::array<Choice, 4> kChoices{
        Choice{Choice::Encoding::delta, 4, 8}, Choice{Choice::Encoding::delta, 3, 16},
        Choice{Choice::Encoding::fixed, 5, 8}, Choice{Choice::Encoding::raw, 16, 8}};
    return kChoices.at(static_cast<std::size_t>(number(step) / 2 % 4));
  };
  SampleEncoder encoder(options, std::make_unique<ActivationCache>(exposed_cache()));
  std::vector<Sent> messages;
  for (std::int64_t step = 0; step < 8; ++step) {
    Sent sent{full_rows(store::Step{step}, 0, kTokens, kWidth, {step % 2, 2 + step % 4}), {}};
    encoder.encode(sent.header,
                   random_values({2, kTokens, kWidth}, static_cast<std::uint64_t>(step)),
                   sent.payload);
    messages.push_back(std::move(sent));
  }
  return messages;
}

std::unique_ptr<SampleDecoder> decoder_before(const std::vector<Sent>& messages,
                                              std::size_t count) {
  auto decoder = std::make_unique<SampleDecoder>(
      at::kFloat, std::make_unique<ActivationCache>(exposed_cache()));
  for (std::size_t i = 0; i < count; ++i) {
    EXPECT_TRUE(decoder->decode(messages[i].header, messages[i].payload).missing.empty());
  }
  return decoder;
}

TEST(HostilePayload, RefusesEveryTruncationWithoutSideEffects) {
  const std::vector<Sent> messages = messages_of_every_sort();
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const auto before_it = decoder_before(messages, i);
    SampleDecoder& decoder = *before_it;
    const Entries before = entries_of(*decoder.cache());
    for (std::size_t size = 0; size < messages[i].payload.size(); ++size) {
      const std::span<const std::byte> cut(messages[i].payload.data(), size);
      ASSERT_THROW(decoder.decode(messages[i].header, cut), CodecError) << size << " bytes";
    }
    net::Frame longer = messages[i].payload;
    longer.push_back(std::byte{0});
    EXPECT_THROW(decoder.decode(messages[i].header, longer), CodecError);
    EXPECT_EQ(entries_of(*decoder.cache()), before);
  }
}

TEST(HostilePayload, SurvivesCorruptedBytes) {
  const std::uint64_t seed = 41;
  std::mt19937_64 random(seed);
  const std::vector<Sent> messages = messages_of_every_sort();
  int refused = 0;
  int missing = 0;
  int accepted = 0;
  for (int i = 0; i < 4000; ++i) {
    const std::size_t place = random() % messages.size();
    const auto before_it = decoder_before(messages, place);
    SampleDecoder& decoder = *before_it;
    net::Frame payload = messages[place].payload;
    const std::size_t reach = i % 2 == 0 ? 20 : payload.size();
    for (std::uint64_t changes = 1 + random() % 3; changes > 0; --changes) {
      payload[random() % reach] = static_cast<std::byte>(random());
    }
    try {
      const Decoded decoded = decoder.decode(messages[place].header, payload);
      EXPECT_EQ(decoded.values.sizes(), (std::vector<std::int64_t>{2, kTokens, kWidth}));
      (decoded.missing.empty() ? accepted : missing) += 1;
    } catch (const CodecError& error) {
      EXPECT_GT(std::string(error.what()).size(), 20U);
      ++refused;
    }
    EXPECT_LE(decoder.cache()->entries(), 6);
  }
  EXPECT_GT(refused, 500) << "seed " << seed;
  EXPECT_GT(missing, 50) << "seed " << seed;
  EXPECT_GT(accepted, 500) << "seed " << seed;
}

TEST(HostilePayload, NoiseIsRefused) {
  const std::uint64_t seed = 43;
  std::mt19937_64 random(seed);
  SampleDecoder decoder(at::kFloat, std::make_unique<ActivationCache>(exposed_cache()));
  const TensorHeader header = full_rows(store::Step{0}, 0, kTokens, kWidth, {0, 1});
  for (int i = 0; i < 5000; ++i) {
    net::Frame noise(random() % 1200);
    for (std::byte& byte : noise) byte = static_cast<std::byte>(random() % 5);
    ASSERT_THROW(decoder.decode(header, noise), CodecError) << "seed " << seed << ", case " << i;
  }
}

TEST(HostilePayload, RefusesCachedRowsWithoutCache) {
  const std::vector<Sent> messages = messages_of_every_sort();
  SampleDecoder decoder(at::kFloat, nullptr);
  EXPECT_THROW(decoder.decode(messages[0].header, messages[0].payload), CodecError);
  net::Frame claims_none = messages[0].payload;
  claims_none[1] = std::byte{0};
  EXPECT_THROW(decoder.decode(messages[0].header, claims_none), CodecError);
  net::Frame claims_other = messages[0].payload;
  claims_other[1] = std::byte{2};
  SampleDecoder cached(at::kFloat, std::make_unique<ActivationCache>(exposed_cache()));
  EXPECT_THROW(cached.decode(messages[0].header, claims_other), CodecError);
}

TEST(HostilePayload, RefusesMoreRowsOfAStepThanFit) {
  SampleEncoderOptions options;
  SampleEncoder encoder(options, std::make_unique<ActivationCache>(exposed_cache(20)));
  SampleDecoder decoder(at::kFloat, std::make_unique<ActivationCache>(exposed_cache(2)));
  const TensorHeader header = full_rows(store::Step{0}, 0, kTokens, kWidth, {0, 1, 2});
  net::Frame payload;
  encoder.encode(header, random_values({3, kTokens, kWidth}, 1), payload);
  EXPECT_THROW(decoder.decode(header, payload), CodecError);
}

TEST(HostilePayload, FirstBytesMatchDocumentation) {
  const std::vector<Sent> messages = messages_of_every_sort();
  const auto byte_at = [&](std::size_t message, std::size_t at) {
    return std::to_integer<int>(messages[message].payload[at]);
  };
  // Format, memory, group; base, bits, flags.
  EXPECT_EQ(byte_at(0, 0), 1);
  EXPECT_EQ(byte_at(0, 1), 1);
  EXPECT_EQ(byte_at(0, 2), 64);
  EXPECT_EQ(byte_at(0, 3), static_cast<int>(RowBase::fresh));
  EXPECT_EQ(byte_at(0, 4), 8);
  EXPECT_EQ(byte_at(0, 5), 0);
  EXPECT_EQ(byte_at(2, 3), static_cast<int>(RowBase::entry));
  EXPECT_EQ(byte_at(2, 4), 3);
  EXPECT_EQ(byte_at(6, 3), static_cast<int>(RowBase::none));
  EXPECT_EQ(byte_at(6, 4), 16);
  EXPECT_EQ(byte_at(6, 5), 0);
}

}  // namespace
}  // namespace strait::codec::hostile_payload_test

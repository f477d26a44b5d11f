#include <gtest/gtest.h>

#include <random>

#include "launcher/base/errors.h"
#include "launcher/worker/inference_stage.h"

namespace strait::worker {
namespace {

std::span<const std::byte> bytes_of(const net::Frame& frame) {
  return {frame.data(), frame.size()};
}

Activation example() {
  run::ExtendSequence request;
  request.sequence = 7;
  request.tokens = {5, 0, 250'000};
  request.capacity = 12;
  request.sampling.temperature = 0.7;
  request.sampling.seed = ~std::uint64_t{0};
  return {run::ExtendBatch{4, {2, 6}, {request}}, at::randn({1, 3, 8})};
}

TEST(ActivationFrame, KeepsRequestAndBits) {
  const Activation sent = example();
  const auto got = read_activation(bytes_of(to_frame(sent)));
  ASSERT_TRUE(got);
  const auto& batch = std::get<run::ExtendBatch>(got->request);
  EXPECT_EQ(batch.number, 4);
  EXPECT_EQ(batch.ended, (std::vector<std::int64_t>{2, 6}));
  const run::ExtendSequence& request = batch.sequences.at(0);
  EXPECT_EQ(request.sequence, 7);
  EXPECT_EQ(request.tokens, (std::vector<std::int32_t>{5, 0, 250'000}));
  EXPECT_EQ(request.capacity, 12);
  EXPECT_EQ(request.sampling.temperature, 0.7);
  EXPECT_EQ(request.sampling.seed, ~std::uint64_t{0});
  EXPECT_TRUE(at::equal(got->values, sent.values));
}

TEST(ActivationFrame, CarriesRequestsWithoutValuesAndTheEnd) {
  const auto got = read_activation(bytes_of(to_frame({run::ExtendBatch{0, {3}, {}}, {}})));
  ASSERT_TRUE(got);
  EXPECT_EQ(std::get<run::ExtendBatch>(got->request).ended, (std::vector<std::int64_t>{3}));
  EXPECT_FALSE(got->values.defined());
  EXPECT_FALSE(read_activation(bytes_of(end_frame())));
}

TEST(ActivationFrame, RefusesEveryTruncation) {
  const net::Frame frame = to_frame(example());
  for (std::size_t size = 0; size < frame.size(); ++size) {
    EXPECT_THROW(read_activation(bytes_of(frame).first(size)), base::MessageError) << size;
  }
}

TEST(ActivationFrame, RefusesOrReadsEveryDamage) {
  const net::Frame whole = to_frame(example());
  std::mt19937 random(3);
  int refused = 0;
  for (int i = 0; i < 3000; ++i) {
    net::Frame frame = whole;
    frame.data()[random() % frame.size()] ^= static_cast<std::byte>(1U << (random() % 8));
    try {
      read_activation(bytes_of(frame));
    } catch (const base::MessageError&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 300);  // the values' own bits may be any
}

}  // namespace
}  // namespace strait::worker

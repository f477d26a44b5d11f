#include <gtest/gtest.h>

#include <algorithm>

#include "launcher/hosts/probe_links.h"

namespace strait::hosts {
namespace {

constexpr double kRate = 12.5e6;

// A flow of kRate from `start` on, seen every `gap` seconds.
std::vector<FlowSample> even_flow(double start, double length, double gap) {
  std::vector<FlowSample> samples;
  for (double at = 0; at <= length; at += gap) {
    samples.push_back({start + at, static_cast<std::uint64_t>(kRate * at)});
  }
  return samples;
}

TEST(FlowRate, MeasuresEvenFlow) {
  EXPECT_NEAR(flow_rate_of_samples(even_flow(1e5, 3, 0.001)), kRate, 1e-3 * kRate);
}

TEST(FlowRate, IgnoresSlowStart) {
  std::vector<FlowSample> samples = even_flow(10, 3, 0.01);
  for (FlowSample& sample : samples) {
    const double at = std::min(sample.seconds - 10, 0.9);
    sample.bytes -= static_cast<std::uint64_t>(kRate * at * 0.8);  // a fifth of the rate at first
  }
  EXPECT_NEAR(flow_rate_of_samples(samples), kRate, 0.01 * kRate);
}

TEST(FlowRate, IgnoresStallOfReader) {
  std::vector<FlowSample> samples = even_flow(10, 3, 0.001);
  std::erase_if(samples, [](const FlowSample& one) {
    const double at = one.seconds - 10;
    return (at > 1.3 && at < 1.6) || (at > 2.1 && at < 2.2);
  });
  EXPECT_NEAR(flow_rate_of_samples(samples), kRate, 0.01 * kRate);
}

TEST(FlowRate, IgnoresStallOfSender) {
  std::vector<FlowSample> samples = even_flow(10, 3, 0.001);
  for (FlowSample& sample : samples) {
    const double lost = std::clamp(sample.seconds - 11.5, 0.0, 0.2);
    sample.bytes -= static_cast<std::uint64_t>(kRate * lost);
  }
  EXPECT_NEAR(flow_rate_of_samples(samples), kRate, 0.01 * kRate);
}

TEST(FlowRate, CountsBursts) {
  std::vector<FlowSample> samples;
  for (int i = 0; i < 300; ++i) {
    const std::uint64_t gushes = static_cast<std::uint64_t>(i) / 60;  // one in 0.6 s
    samples.push_back({10 + i * 0.01, gushes * static_cast<std::uint64_t>(0.6 * kRate)});
  }
  EXPECT_NEAR(flow_rate_of_samples(samples), kRate, 0.01 * kRate);
}

TEST(FlowRate, CountsPacketsOfSlowLink) {
  std::vector<FlowSample> samples;
  for (int i = 0; i < 30; ++i) samples.push_back({i * 0.1, static_cast<std::uint64_t>(i) * 1448});
  EXPECT_NEAR(flow_rate_of_samples(samples), 14480, 1);
}

TEST(FlowRate, IsZeroForTooFewSamples) {
  EXPECT_EQ(flow_rate_of_samples({}), 0);
  const std::vector<FlowSample> one = {{1, 1000}};
  EXPECT_EQ(flow_rate_of_samples(one), 0);
  const std::vector<FlowSample> at_once = {{1, 1000}, {1, 2000}};
  EXPECT_EQ(flow_rate_of_samples(at_once), 0);
}

}  // namespace
}  // namespace strait::hosts

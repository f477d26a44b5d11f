#include "launcher/reach/steady_rate.h"

#include <algorithm>
#include <iterator>

namespace strait::reach {
namespace {

constexpr double kBeginning = 1.0 / 3;  // of the time, in which TCP finds its speed
constexpr int kPieces = 8;              // of the rest

// The last sample before the moment: what had come by then, and when that was.
const FlowSample* last_before(std::span<const FlowSample> samples, double moment) {
  const auto behind = std::ranges::lower_bound(samples, moment, {}, &FlowSample::seconds);
  return behind == samples.begin() ? nullptr : &*std::prev(behind);
}

double rate_between(const FlowSample& from, const FlowSample& to) {
  return static_cast<double>(to.bytes - from.bytes) / (to.seconds - from.seconds);
}

// Of the pieces that the time from `start` on is cut into. A standstill spoils one of them.
std::vector<double> piece_rates(std::span<const FlowSample> samples, double start) {
  const double end = samples.back().seconds;
  std::vector<double> rates;
  for (int piece = 0; piece < kPieces; ++piece) {
    const double length = (end - start) / kPieces;
    const FlowSample* from = last_before(samples, start + piece * length);
    const FlowSample* to = last_before(samples, start + (piece + 1) * length);
    if (piece + 1 == kPieces) to = &samples.back();
    if (from == nullptr || to == nullptr || to->seconds <= from->seconds) continue;
    rates.push_back(rate_between(*from, *to));
  }
  return rates;
}

// The sample that is furthest ahead of a steady flow of this rate: what had come was all there, and
// nothing waited for a lost packet.
const FlowSample& furthest(std::span<const FlowSample> samples, double rate) {
  return *std::ranges::max_element(samples, {}, [rate](const FlowSample& sample) {
    return static_cast<double>(sample.bytes) - rate * sample.seconds;
  });
}

// From such a sample early on to one near the end.
double gush_rate(std::span<const FlowSample> samples, double start) {
  const double third = (samples.back().seconds - start) / 3;
  const auto at = [&](double moment) {
    return std::ranges::lower_bound(samples, moment, {}, &FlowSample::seconds);
  };
  const std::span<const FlowSample> early(at(start), at(start + third));
  const std::span<const FlowSample> late(at(start + 2 * third), samples.end());
  if (early.empty() || late.empty()) return 0;
  double rate = rate_between(early.front(), late.back());
  constexpr int kRounds = 4;  // each finds better samples by the rate of the one before
  for (int i = 0; i < kRounds; ++i) {
    rate = rate_between(furthest(early, rate), furthest(late, rate));
  }
  return rate;
}

}  // namespace

double steady_rate(std::span<const FlowSample> samples) {
  if (samples.size() < 2) return 0;
  const double end = samples.back().seconds;
  const double start = samples.front().seconds + kBeginning * (end - samples.front().seconds);
  std::vector<double> rates = piece_rates(samples, start);
  if (rates.empty()) return 0;
  const auto middle = rates.begin() + static_cast<std::ptrdiff_t>(rates.size() / 2);
  std::ranges::nth_element(rates, middle);
  // Where packets are lost, bytes come in gushes, and most pieces see too few.
  return std::max(*middle, gush_rate(samples, start));
}

std::vector<FlowSample> merge_flows(std::span<const std::vector<FlowSample>> flows) {
  std::vector<FlowSample> growth;  // by so much at that moment
  for (const std::vector<FlowSample>& flow : flows) {
    std::uint64_t before = 0;
    for (const FlowSample& sample : flow) {
      growth.push_back({sample.seconds, sample.bytes - before});
      before = sample.bytes;
    }
  }
  std::ranges::stable_sort(growth, {}, &FlowSample::seconds);
  std::uint64_t total = 0;
  for (FlowSample& sample : growth) sample.bytes = total += sample.bytes;
  return growth;
}

}  // namespace strait::reach

#include "launcher/hosts/flow.h"

#include <algorithm>
#include <iterator>

#include "launcher/base/median.h"

namespace strait::hosts {
namespace {

constexpr double kSlowStart = 1.0 / 3;  // share of the time in which TCP finds its speed
constexpr int kPieces = 8;

// The last sample before the moment; null if there is none.
const FlowSample* last_before(std::span<const FlowSample> samples, double moment) {
  const auto after = std::ranges::lower_bound(samples, moment, {}, &FlowSample::seconds);
  return after == samples.begin() ? nullptr : &*std::prev(after);
}

double rate_between(const FlowSample& from, const FlowSample& to) {
  return static_cast<double>(to.bytes - from.bytes) / (to.seconds - from.seconds);
}

// The rates of kPieces equal parts of the time after `start`. A stall spoils only one of them.
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

// The sample that is furthest ahead of a steady flow of this rate: at that moment no byte waited
// for a lost packet.
const FlowSample& furthest(std::span<const FlowSample> samples, double rate) {
  return *std::ranges::max_element(samples, {}, [rate](const FlowSample& sample) {
    return static_cast<double>(sample.bytes) - rate * sample.seconds;
  });
}

// The rate between such a sample in the first third and one in the last third.
double burst_rate(std::span<const FlowSample> samples, double start) {
  const double third = (samples.back().seconds - start) / 3;
  const auto at = [&](double moment) {
    return std::ranges::lower_bound(samples, moment, {}, &FlowSample::seconds);
  };
  const std::span<const FlowSample> early(at(start), at(start + third));
  const std::span<const FlowSample> late(at(start + 2 * third), samples.end());
  if (early.empty() || late.empty()) return 0;
  double rate = rate_between(early.front(), late.back());
  constexpr int kRounds = 4;  // each finds better samples by the rate of the last round
  for (int i = 0; i < kRounds; ++i) {
    rate = rate_between(furthest(early, rate), furthest(late, rate));
  }
  return rate;
}

}  // namespace

double flow_rate_of_samples(std::span<const FlowSample> samples) {
  if (samples.size() < 2) return 0;
  const double end = samples.back().seconds;
  const double start = samples.front().seconds + kSlowStart * (end - samples.front().seconds);
  const std::vector<double> rates = piece_rates(samples, start);
  if (rates.empty()) return 0;
  // Where packets are lost, bytes arrive in bursts, and most pieces contain too few.
  return std::max(base::median(rates), burst_rate(samples, start));
}

}  // namespace strait::hosts

#include "framework/net/path_conditions.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace strait::net {
namespace {

// Payload of a TCP segment on Ethernet: MTU 1500 minus headers and timestamps.
constexpr double kPacketBytes = 1448;
// The initial window of Linux, RFC 6928.
constexpr double kFirstWindow = 10 * kPacketBytes;
constexpr double kLeastWindow = 2 * kPacketBytes;
constexpr double kMostWindow = 64 << 20;
// A machine does not answer faster, however short the path.
constexpr double kLeastRoundTrip = 1e-3;
// How far a sender may be ahead of the serialiser.
constexpr std::chrono::milliseconds kReadAhead{10};

double seconds(std::chrono::nanoseconds time) {
  return std::chrono::duration<double>(time).count();
}

std::chrono::nanoseconds from_seconds(double time) {
  return std::chrono::nanoseconds(static_cast<std::int64_t>(time * 1e9));
}

double round_trip(const PathConditions& conditions) {
  return std::max(kLeastRoundTrip, 2 * seconds(conditions.delay));
}

}  // namespace

double PathConditions::mean_bytes_per_second() const {
  const double rate = static_cast<double>(bits_per_second) / 8;
  if (loss <= 0) return rate;
  // Mathis et al. 1997: the throughput of TCP Reno at this loss.
  const double reno = kPacketBytes / round_trip(*this) * std::sqrt(1.5 / loss);
  return rate > 0 ? std::min(rate, reno) : reno;
}

PathQueue::PathQueue(const PathConditions& conditions, std::uint64_t seed)
    : conditions_(conditions), random_(seed), window_(kFirstWindow), threshold_(kMostWindow) {}

PathQueue::Time PathQueue::ready() const { return idle_from_ - kReadAhead; }

PathQueue::Time PathQueue::enter(std::size_t bytes, Time now) {
  const auto size = static_cast<double>(bytes);
  std::uniform_real_distribution<double> share(0, 1);
  double rate = conditions_.bits_per_second > 0
                    ? static_cast<double>(conditions_.bits_per_second) / 8
                    : std::numeric_limits<double>::infinity();
  if (conditions_.loss > 0) {
    const double most = std::min(kMostWindow, rate * round_trip(conditions_) + kFirstWindow);
    // Slow start up to the threshold, then a packet per round trip.
    window_ += window_ < threshold_ ? size : kPacketBytes * size / window_;
    window_ = std::min(window_, most);
    rate = std::min(rate, window_ / round_trip(conditions_));
  }
  idle_from_ = std::max(idle_from_, now) + from_seconds(size / rate);
  Time arrives = idle_from_ + conditions_.delay;
  const double packets = std::ceil(size / kPacketBytes);
  if (conditions_.loss > 0 && share(random_) < 1 - std::pow(1 - conditions_.loss, packets)) {
    arrives += from_seconds(round_trip(conditions_));
    lose(arrives);
  }
  // TCP delivers in order: a delayed packet delays all later ones.
  arrived_ = std::max(arrived_, arrives);
  return arrived_;
}

void PathQueue::lose(Time arrives) {
  // TCP halves its window at most once per round trip.
  if (arrives < reduced_until_) return;
  window_ = std::max(kLeastWindow, window_ / 2);
  threshold_ = window_;
  reduced_until_ = arrives + from_seconds(round_trip(conditions_));
}

}  // namespace strait::net

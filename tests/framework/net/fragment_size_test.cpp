
#include <gtest/gtest.h>

#include <cmath>
#include <deque>
#include <random>

#include "framework/net/rate_meter.h"
#include "framework/net/wire_format.h"

namespace strait::net {
namespace {

using std::chrono::milliseconds;
using Time = FragmentSize::Time;
using Seconds = std::chrono::duration<double>;

TEST(FragmentSize, TakesTenMillisecondsOfAKnownPath) {
  const FragmentSize size;
  EXPECT_EQ(size.limit(100e6 / 8), 125'000U);
  EXPECT_EQ(size.limit(10e9 / 8), 12'500'000U);
  EXPECT_EQ(size.limit(1e12), kMaxFragmentBytes);
}

TEST(FragmentSize, SlowPathNeverGetsMoreThanItTakesInSeconds) {
  const FragmentSize size;
  EXPECT_EQ(size.limit(0), FragmentSize::kLeast);
  for (double bits = 10e3; bits < 10e9; bits *= 1.3) {
    const double seconds = static_cast<double>(size.limit(bits / 8)) / (bits / 8);
    EXPECT_LT(seconds, 3.3) << bits;
  }
}

TEST(FragmentSize, FrameGoesInThreeFragmentsUnlessTheyWouldBeSmall) {
  EXPECT_EQ(FragmentSize::part_of(300'000), 100'001U);
  EXPECT_EQ(FragmentSize::part_of(1000), 16'384U);
  EXPECT_EQ(FragmentSize::part_of(0), 16'384U);
}

TEST(FragmentSize, ShrinksWhileNothingIsConfirmed) {
  FragmentSize size;
  const Time start{};
  constexpr double kRate = 100e6 / 8;
  size.update(start, 1 << 20, 0);
  size.update(start + milliseconds(400), 1 << 20, 0);
  EXPECT_EQ(size.limit(kRate), 125'000U);
  size.update(start + milliseconds(500), 1 << 20, 0);
  EXPECT_EQ(size.limit(kRate), FragmentSize::kLeast);
  size.update(start + milliseconds(900), 1 << 20,
              1 << 20);  // all through: nothing is known against it
  EXPECT_EQ(size.limit(kRate), 125'000U);
}

// A sender that keeps `queue` bytes in flight on a path of changing rate, and measures it as a
// link does.
class NarrowPath {
 public:
  NarrowPath(double rate, std::uint64_t queue, double round_trip)
      : rate_(rate), queue_(queue), round_trip_(round_trip) {}

  void set_rate(double rate) { rate_ = rate; }

  void run(Seconds time) {
    constexpr Seconds kTurn{0.002};
    for (double done = 0; done < time.count(); done += kTurn.count()) {
      now_ += std::chrono::duration_cast<Time::duration>(kTurn);
      carried_ += rate_ * kTurn.count();
      confirm();
      meter_.update(now_, sent_ + 1, confirmed_, now_.time_since_epoch());
      size_.update(now_, sent_, confirmed_);
      while (sent_ - confirmed_ < queue_) send();
    }
  }

  std::uint64_t limit() const { return size_.limit(meter_.bytes_per_second()); }
  std::uint64_t confirmed() const { return confirmed_; }
  // Of fragments that were sent since the rate last changed and what lay in the queue is through.
  double slowest_fragment() const { return static_cast<double>(limit()) / rate_; }

 private:
  void send() {
    const std::uint64_t bytes = limit();
    sent_ += bytes;
    carried_ = ends_.empty() ? std::max(carried_, static_cast<double>(sent_ - bytes)) : carried_;
    ends_.push_back(sent_);
    meter_.fragment_sent(now_, sent_, true);
  }

  // Only whole fragments are confirmed, and half a round trip later.
  void confirm() {
    while (!ends_.empty() && carried_ >= static_cast<double>(ends_.front())) {
      on_the_way_.emplace_back(now_ + std::chrono::duration_cast<Time::duration>(round_trip_),
                               ends_.front());
      ends_.pop_front();
    }
    carried_ = std::min(carried_, static_cast<double>(sent_));
    while (!on_the_way_.empty() && on_the_way_.front().first <= now_) {
      confirmed_ = on_the_way_.front().second;
      on_the_way_.pop_front();
    }
  }

  double rate_;
  std::uint64_t queue_;
  Seconds round_trip_;
  Time now_{};
  RateMeter meter_;
  FragmentSize size_;
  std::uint64_t sent_ = 0;
  std::uint64_t confirmed_ = 0;
  double carried_ = 0;
  std::deque<std::uint64_t> ends_;
  std::deque<std::pair<Time, std::uint64_t>> on_the_way_;
};

// 10 kbit/s to 10 Gbit/s, with sudden drops: once what lay in queues is through, or was lost with
// the connection, no fragment takes longer than a silent path has.
TEST(FragmentSize, FollowsDropsOfAnyPath) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    std::mt19937_64 random(seed);
    const auto exponent = [&](double low, double high) {
      return std::pow(10, std::uniform_real_distribution<double>(low, high)(random)) / 8;
    };
    const double fast = exponent(6, 10);
    const double slow = exponent(4, 5.5);
    NarrowPath path(fast, 64 << 10, std::uniform_real_distribution<double>(0, 0.2)(random));
    path.run(Seconds(3));
    EXPECT_GT(path.confirmed(), 0U);
    path.set_rate(slow);
    // Fragments of the fast path are still in flight; a link drops its connection after 6 s of
    // silence.
    path.run(Seconds(2));
    EXPECT_LT(path.slowest_fragment(), 6) << "seed " << seed << ": " << fast << " to " << slow;
    const std::uint64_t before = path.confirmed();
    path.run(Seconds(600));
    EXPECT_GT(path.confirmed(), before) << "seed " << seed;
    EXPECT_LT(path.slowest_fragment(), 3.5) << "seed " << seed;
  }
}

TEST(FragmentSize, FastPathIsNotMistaken) {
  for (const double megabits : {10.0, 100.0, 1000.0}) {
    for (const double round_trip : {0.0, 0.02, 0.15, 0.3}) {
      const double rate = megabits * 1e6 / 8;
      NarrowPath path(rate, static_cast<std::uint64_t>(rate), round_trip);
      path.run(Seconds(20));
      // Ten milliseconds of it, within the accuracy of the measurement.
      EXPECT_GT(static_cast<double>(path.limit()), 0.005 * rate) << megabits << ' ' << round_trip;
    }
  }
}

}  // namespace
}  // namespace strait::net

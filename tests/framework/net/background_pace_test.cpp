// A background link on simulated paths: a queue that is served at some rate, and a round trip.
#include "framework/net/background_pace.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <random>
#include <string>

namespace strait::net {
namespace {

using Time = BackgroundPace::Time;
using Load = Uplink::Load;
using std::chrono::milliseconds;
using Seconds = std::chrono::duration<double>;

constexpr std::uint64_t kFraming = 104;
constexpr std::chrono::microseconds kStep{50};

Time::duration ticks(double seconds) {
  return std::chrono::duration_cast<Time::duration>(Seconds(seconds));
}

// One uplink, a foreground link that is told what to send, and a background link that always has
// something. Whatever goes is served in order, and confirmed up to `jitter` later than it might be.
class SharedPath {
 public:
  SharedPath(double bytes_per_second, double round_trip, double jitter = 0)
      : rate_(bytes_per_second), round_trip_(round_trip), late_(0, jitter) {}

  void run(double seconds) {
    for (const Time end = now_ + ticks(seconds); now_ < end; now_ += kStep) step();
  }
  void burst(std::uint64_t bytes) {
    uplink_.foreground_sent(bytes);
    serve(bytes);
    foreground_done_ = free_at_ + ticks(round_trip_);
    tell(Load::under_way);
  }
  void tell(Load load) {
    uplink_.change(Priority::foreground, foreground_, load);
    foreground_ = load;
  }
  void change_rate(double bytes_per_second) { rate_ = bytes_per_second; }

  double background_bytes() const { return static_cast<double>(carried_); }
  double queued_seconds() const { return std::max(0.0, Seconds(free_at_ - now_).count()); }
  double worst_queue() const { return worst_queue_; }
  void forget_worst_queue() { worst_queue_ = 0; }
  double longest_pause() const { return longest_pause_; }
  BackgroundPace& pace() { return pace_; }
  Uplink& uplink() { return uplink_; }
  Time now() const { return now_; }

 private:
  struct Confirmation {
    Time at;
    std::uint64_t place;
  };

  void serve(std::uint64_t bytes) {
    free_at_ = std::max(free_at_, now_) + ticks(static_cast<double>(bytes) / rate_);
  }
  void step() {
    if (foreground_ == Load::under_way && now_ >= foreground_done_) tell(Load::none);
    while (!confirmations_.empty() && confirmations_.front().at <= now_) {
      carried_ = confirmations_.front().place;
      pace_.received(now_, carried_, uplink_);
      confirmations_.pop_front();
    }
    while (const std::uint64_t bytes = pace_.allowance(now_, uplink_)) {
      place_ += bytes;
      serve(bytes + kFraming);
      pace_.sent(now_, place_, bytes + kFraming, uplink_);
      last_confirmed_ = std::max(last_confirmed_, free_at_ + ticks(round_trip_ + late_(random_)));
      confirmations_.push_back({last_confirmed_, place_});
      longest_pause_ = std::max(longest_pause_, Seconds(now_ - went_at_).count());
      went_at_ = now_;
    }
    worst_queue_ = std::max(worst_queue_, queued_seconds());
  }

  double rate_;
  double round_trip_;
  std::uniform_real_distribution<double> late_;
  std::mt19937_64 random_{5};
  Uplink uplink_;
  BackgroundPace pace_;
  Load foreground_ = Load::none;
  Time now_{std::chrono::seconds(100)};
  Time free_at_ = now_;  // when what is queued will have been served
  Time foreground_done_ = now_;
  Time went_at_ = now_;
  std::deque<Confirmation> confirmations_;
  Time last_confirmed_ = now_;
  std::uint64_t place_ = 0;
  std::uint64_t carried_ = 0;
  double worst_queue_ = 0;
  double longest_pause_ = 0;
};

double uniform(std::mt19937_64& random, double low, double high) {
  return std::uniform_real_distribution(low, high)(random);
}

// Seconds. Measured a little high it is a little longer than kQueue; a narrow path has its least.
double longest_queue(double bytes_per_second) {
  return 2 * Seconds(BackgroundPace::kQueue).count() +
         static_cast<double>(BackgroundPace::kLeastLimit) / bytes_per_second;
}

TEST(BackgroundPace, FillsAnyIdlePathWithAShortQueue) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 30; ++round) {
    const double rate = 1e6 * std::exp2(uniform(random, 0, 8));  // 8 Mbit/s to 2 Gbit/s
    const double round_trip = 1e-4 * std::exp2(uniform(random, 0, 9));
    SharedPath path(rate, round_trip);
    path.run(10 * round_trip + 2);
    path.forget_worst_queue();
    const double before = path.background_bytes();
    path.run(4);
    const double share = (path.background_bytes() - before) / (4 * rate);
    EXPECT_GE(share, 0.9) << rate << " bytes/s, " << round_trip << " s";
    EXPECT_LE(path.worst_queue(), longest_queue(rate))
        << rate << " bytes/s, " << round_trip << " s";
  }
}

TEST(BackgroundPace, FollowsAPathThatBecomesNarrowOrWide) {
  SharedPath path(12.5e6, 0.002);
  path.run(2);
  path.change_rate(2e6);
  path.run(3);
  path.forget_worst_queue();
  path.run(1);
  EXPECT_LE(path.worst_queue(), longest_queue(2e6));
  path.change_rate(50e6);
  path.run(2);
  const double before = path.background_bytes();
  path.run(2);
  EXPECT_GE(path.background_bytes() - before, 0.9 * 2 * 50e6);
}

TEST(BackgroundPace, OnlyATrickleGoesWhileTheForegroundWaitsAndItNeverEnds) {
  SharedPath path(12.5e6, 0.001);
  path.run(2);
  path.tell(Load::waiting);
  path.run(0.1);  // what was under way arrives
  const double before = path.background_bytes();
  path.run(10);
  const double trickled = path.background_bytes() - before;
  EXPECT_LE(trickled, 101 * BackgroundPace::kLeastChunk);
  EXPECT_GE(trickled, 99 * BackgroundPace::kLeastChunk);
  EXPECT_LE(path.longest_pause(), 0.11);
  path.tell(Load::none);
  const double then = path.background_bytes();
  path.run(1);
  EXPECT_GE(path.background_bytes() - then, 0.9 * 12.5e6);
}

TEST(BackgroundPace, LinksShareTheTrickleAndTheQueue) {
  Uplink uplink;
  for (int i = 0; i < 4; ++i) uplink.change(Priority::background, Load::none, Load::waiting);
  uplink.change(Priority::foreground, Load::none, Load::waiting);
  BackgroundPace pace;
  Time now{std::chrono::seconds(100)};
  EXPECT_EQ(pace.allowance(now, uplink), BackgroundPace::kLeastChunk);
  pace.sent(now, 4096, 4200, uplink);
  EXPECT_EQ(pace.allowance(now + milliseconds(399), uplink), 0u);
  EXPECT_EQ(pace.allowance(now + milliseconds(400), uplink), BackgroundPace::kLeastChunk);
}

TEST(BackgroundPace, BurstsFindTheUplinkNearlyFreeAndLeaveTheRestToTheBackground) {
  std::mt19937_64 random(2);
  for (int round = 0; round < 20; ++round) {
    const double rate = 1e6 * std::exp2(uniform(random, 1, 7));
    const double round_trip = 1e-4 * std::exp2(uniform(random, 0, 6));
    SharedPath path(rate, round_trip);
    path.run(3);
    const double before = path.background_bytes();
    const auto burst = static_cast<std::uint64_t>(0.08 * rate);
    double seconds = 0;
    for (int i = 0; i < 20; ++i) {
      EXPECT_LE(path.queued_seconds(), longest_queue(rate));
      path.burst(burst);
      const double every = uniform(random, 0.18, 0.25);
      path.run(every);
      seconds += every;
    }
    const double rest = seconds * rate - 20.0 * static_cast<double>(burst);
    EXPECT_GE(path.background_bytes() - before, 0.85 * rest)
        << rate << " bytes/s, " << round_trip << " s";
  }
}

// A rate that is measured from where the path was empty falls from burst to burst; a trickle that
// is always under way hides that it was; and what is a little too fast adds up where no limit is
// reached.
TEST(BackgroundPace, SoItIsOnLongPathsAndWhereConfirmationsAreLate) {
  std::mt19937_64 random(3);
  for (int round = 0; round < 40; ++round) {
    const double rate = 1e6 * std::exp2(uniform(random, 2, 7));
    const double round_trip = 0.005 * std::exp2(uniform(random, 0, 5));
    const double every = 0.05 * std::exp2(uniform(random, 0, 2));
    const double jitter = uniform(random, 0, 0.002);
    SharedPath path(rate, round_trip, jitter);
    path.run(5);
    const double before = path.background_bytes();
    const auto burst = static_cast<std::uint64_t>(0.4 * every * rate);
    int waited = 0;
    constexpr int kBursts = 200;
    for (int i = 0; i < kBursts; ++i) {
      waited += path.queued_seconds() > longest_queue(rate) + 0.05 * round_trip;
      path.burst(burst);
      path.run(every);
    }
    const double rest = kBursts * (every * rate - static_cast<double>(burst));
    const std::string where = fmt::format("{:.3g} bytes/s, {:.3f} s, {:.4f} s late, every {:.3f} s",
                                          rate, round_trip, jitter, every);
    EXPECT_GE(path.background_bytes() - before, 0.8 * rest) << where;
    EXPECT_LE(waited, kBursts / 20) << where;
  }
}

// On a long path something is always under way, and the uplink is idle all the same.
TEST(BackgroundPace, UnconfirmedBytesThatTheUplinkHasCarriedDoNotHoldItBack) {
  SharedPath path(12.5e6, 0.05);
  path.run(5);
  const double before = path.background_bytes();
  for (int i = 0; i < 100; ++i) {
    path.burst(25'000);
    path.run(0.02);
  }
  const double rest = 2 * 12.5e6 - 100 * 25'000.0;
  EXPECT_GE(path.background_bytes() - before, 0.8 * rest);
}

TEST(Uplink, AsksForARoundWhenTheForegroundNeedsItLess) {
  Uplink uplink;
  EXPECT_EQ(uplink.take_due(), Time::max());
  uplink.change(Priority::foreground, Load::none, Load::waiting);
  EXPECT_TRUE(uplink.foreground_waits());
  EXPECT_EQ(uplink.take_due(), Time::max());
  uplink.change(Priority::foreground, Load::waiting, Load::under_way);
  EXPECT_FALSE(uplink.foreground_waits());
  EXPECT_TRUE(uplink.foreground_under_way());
  EXPECT_EQ(uplink.take_due(), Time::min());
  uplink.change(Priority::foreground, Load::under_way, Load::none);
  EXPECT_FALSE(uplink.foreground_under_way());
  EXPECT_EQ(uplink.take_due(), Time::min());
  EXPECT_EQ(uplink.take_due(), Time::max());
}

TEST(Uplink, TheEarliestDueRoundCounts) {
  Uplink uplink;
  const Time now{std::chrono::seconds(100)};
  uplink.look_at(now + milliseconds(5));
  uplink.look_at(now + milliseconds(3));
  uplink.look_at(now + milliseconds(4));
  EXPECT_EQ(uplink.take_due(), now + milliseconds(3));
}

}  // namespace
}  // namespace strait::net

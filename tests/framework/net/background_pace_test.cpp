// A background link on simulated paths: a queue that is served at some rate, and a round trip.
#include "framework/net/background_pace.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <deque>
#include <random>

#include "framework/net/rate_meter.h"

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

// What confirmations wait for on their way back: a flood of TCP in the other direction keeps a
// queue that grows to `most` seconds and is halved when a packet is lost; a confirmation that is
// lost as well holds up those after it for a round trip.
struct ReturnQueue {
  double most = 0;
  double lost = 0;  // share
};

// One uplink, a foreground link that is told what to send, and a background link that always has
// something. Whatever goes is served in order, arrives half a round trip later, and is confirmed up
// to `jitter` later than it might be. The peer's clock is another one, and `drifts` off ours.
class SharedPath {
 public:
  SharedPath(double bytes_per_second, double round_trip, double jitter = 0)
      : rate_(bytes_per_second), round_trip_(round_trip), late_(0, jitter) {}

  void run(double seconds) {
    for (const Time end = now_ + ticks(seconds); now_ < end; now_ += kStep) step();
  }
  // Of several fragments, as a link's end cuts them.
  void burst(std::uint64_t bytes) {
    constexpr std::uint64_t kFragment = 40'000;
    const std::uint64_t end = foreground_position_ + bytes;
    meter_.update(now_, end, foreground_confirmed_, foreground_arrived_);
    while (foreground_position_ < end) {
      const std::uint64_t fragment = std::min(kFragment, end - foreground_position_);
      foreground_position_ += fragment;
      meter_.fragment_sent(now_, foreground_position_, foreground_position_ < end);
      uplink_.foreground_sent(fragment, meter_.back_to_back_rate());
      serve(fragment);
      confirm_later(foreground_, foreground_position_);
    }
    change_load(Load::in_flight);
  }
  // To a peer that confirms nothing, and not over what carries the background.
  void send_elsewhere(std::uint64_t bytes) {
    uplink_.foreground_sent(bytes, 0);
    change_load(Load::in_flight);
  }
  void change_load(Load load) {
    uplink_.change(Priority::foreground, load_, load);
    load_ = load;
  }
  void change_rate(double bytes_per_second) { rate_ = bytes_per_second; }
  void flood_back(const ReturnQueue& queue) { return_queue_ = queue; }
  void let_clock_drift(double drifts) { drifts_ = drifts; }
  // Until then nothing is confirmed: a host is busy.
  void stall(double seconds) { stalled_until_ = now_ + ticks(seconds); }

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
    std::uint64_t position;
    std::chrono::nanoseconds arrived;  // by the peer's clock
  };
  using Confirmations = std::deque<Confirmation>;

  void serve(std::uint64_t bytes) {
    free_at_ = std::max(free_at_, now_) + ticks(static_cast<double>(bytes) / rate_);
  }
  void confirm_later(Confirmations& confirmations, std::uint64_t position) {
    const Time arrives = std::max(free_at_ + ticks(round_trip_ / 2), stalled_until_);
    const Time at = arrives + ticks(round_trip_ / 2 + late_(random_) + waits_back(arrives));
    const Time before = confirmations.empty() ? at : confirmations.back().at;
    confirmations.push_back({std::max(at, before), position, peers_clock(arrives)});
  }
  double waits_back(Time arrives) {
    if (return_queue_.most == 0) return 0;
    constexpr double kPeriod = 1.5;
    const double passed = std::fmod(Seconds(arrives.time_since_epoch()).count(), kPeriod) / kPeriod;
    const double waits = return_queue_.most * (1 + passed) / 2;
    const bool lost = std::bernoulli_distribution(return_queue_.lost)(random_);
    return lost ? 2 * waits + round_trip_ : waits;
  }
  std::chrono::nanoseconds peers_clock(Time at) const {
    const Seconds passed = at - Time{};
    return std::chrono::duration_cast<std::chrono::nanoseconds>(passed * (1 + drifts_)) + kApart;
  }
  void step() {
    while (!foreground_.empty() && foreground_.front().at <= now_) {
      foreground_confirmed_ = foreground_.front().position;
      foreground_arrived_ = foreground_.front().arrived;
      foreground_.pop_front();
      meter_.update(now_, foreground_position_, foreground_confirmed_, foreground_arrived_);
      if (foreground_.empty()) change_load(Load::none);
    }
    while (!background_.empty() && background_.front().at <= now_) {
      carried_ = background_.front().position;
      pace_.received(now_, carried_, background_.front().arrived, uplink_);
      background_.pop_front();
    }
    while (const std::uint64_t bytes = pace_.allowance(now_, uplink_)) {
      place_ += bytes;
      serve(bytes + kFraming);
      pace_.sent(now_, place_, bytes + kFraming, uplink_);
      confirm_later(background_, place_);
      longest_pause_ = std::max(longest_pause_, Seconds(now_ - went_at_).count());
      went_at_ = now_;
    }
    worst_queue_ = std::max(worst_queue_, queued_seconds());
  }

  static constexpr std::chrono::hours kApart{20};  // what the peer's clock shows at our 0

  double rate_;
  double round_trip_;
  double drifts_ = 0;
  ReturnQueue return_queue_;
  std::uniform_real_distribution<double> late_;
  std::mt19937_64 random_{5};
  Uplink uplink_;
  BackgroundPace pace_;
  Load load_ = Load::none;  // of the foreground, as the uplink knows it
  Time now_{std::chrono::seconds(100)};
  Time free_at_ = now_;  // when what is queued will have been served
  Time went_at_ = now_;
  Time stalled_until_ = now_;
  RateMeter meter_;  // the foreground link's
  Confirmations foreground_;
  Confirmations background_;
  std::uint64_t foreground_position_ = 0;
  std::uint64_t foreground_confirmed_ = 0;
  std::chrono::nanoseconds foreground_arrived_{0};
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

// The first rate is far too low then, and at its pace each fragment is confirmed before the next
// goes.
TEST(BackgroundPace, FillsAPathAfterLateFirstConfirmations) {
  std::mt19937_64 random(4);
  for (int round = 0; round < 30; ++round) {
    const double rate = 1e6 * std::exp2(uniform(random, 3, 9));
    const double round_trip = 1e-4 * std::exp2(uniform(random, 0, 6));
    const double stalled = uniform(random, 0.01, 0.3);
    SharedPath path(rate, round_trip);
    for (int i = 0; i < round % 3 * 5; ++i) {  // with other links, which send nothing now
      path.uplink().change(Priority::background, Load::none, Load::in_flight);
    }
    path.run(round % 4 == 0 ? 3 : uniform(random, 0, 6) * round_trip);
    path.stall(stalled);
    path.run(stalled + 10 * round_trip + 2);
    path.forget_worst_queue();
    const double before = path.background_bytes();
    path.run(2);
    const std::string where =
        fmt::format("{:.3g} bytes/s, {:.4f} s, stalled {:.3f} s", rate, round_trip, stalled);
    EXPECT_GE(path.background_bytes() - before, 0.9 * 2 * rate) << where;
    EXPECT_LE(path.worst_queue(), longest_queue(rate)) << where;
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
  path.change_load(Load::waiting);
  path.run(0.1);  // what was in flight arrives
  const double before = path.background_bytes();
  path.run(10);
  const double trickled = path.background_bytes() - before;
  EXPECT_LE(trickled, 101 * BackgroundPace::kLeastFragment);
  EXPECT_GE(trickled, 99 * BackgroundPace::kLeastFragment);
  EXPECT_LE(path.longest_pause(), 0.11);
  path.change_load(Load::none);
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
  EXPECT_EQ(pace.allowance(now, uplink), BackgroundPace::kLeastFragment);
  pace.sent(now, 4096, 4200, uplink);
  EXPECT_EQ(pace.allowance(now + milliseconds(399), uplink), 0u);
  EXPECT_EQ(pace.allowance(now + milliseconds(400), uplink), BackgroundPace::kLeastFragment);
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
// is always in flight hides that it was; what is a little too fast adds up where no limit is
// reached; and where something of the foreground is always in flight, its own confirmations have to
// tell when it has left.
TEST(BackgroundPace, SoItIsOnLongPathsAndWhereConfirmationsAreLate) {
  std::mt19937_64 random(3);
  for (int round = 0; round < 60; ++round) {
    const double rate = 1e6 * std::exp2(uniform(random, 2, 7));
    const double round_trip = 0.005 * std::exp2(uniform(random, 0, 5));
    const double every = 0.05 * std::exp2(uniform(random, 0, 2));
    const double jitter = uniform(random, 0, 0.002);
    const auto burst = static_cast<std::uint64_t>(uniform(random, 0.05, 0.5) * every * rate);
    SharedPath path(rate, round_trip, jitter);
    if (round % 2 == 0) path.run(5);
    double before = 0;
    int waited = 0;
    constexpr int kBursts = 300;
    constexpr int kLearning = 100;
    for (int i = 0; i < kBursts; ++i) {
      if (i == kLearning) before = path.background_bytes();
      waited += i >= kLearning && path.queued_seconds() > longest_queue(rate) + 0.05 * round_trip;
      path.burst(burst);
      path.run(every);
    }
    const double rest = (kBursts - kLearning) * (every * rate - static_cast<double>(burst));
    const std::string where =
        fmt::format("{:.3g} bytes/s, {:.3f} s, {:.4f} s late, {} bytes every {:.3f} s", rate,
                    round_trip, jitter, burst, every);
    EXPECT_GE(path.background_bytes() - before, 0.8 * rest) << where;
    EXPECT_LE(waited, (kBursts - kLearning) / 10) << where;
  }
}

// Ours and the peer's clocks drift apart as cheap ones do; now and then a confirmation is lost.
TEST(BackgroundPace, LateConfirmationsAreNoQueueThatItsOwnBytesWaitIn) {
  std::mt19937_64 random(6);
  for (int round = 0; round < 30; ++round) {
    const double rate = 1e6 * std::exp2(uniform(random, 1, 6));
    const double round_trip = 1e-3 * std::exp2(uniform(random, 0, 5));
    const ReturnQueue queue{uniform(random, 0.05, 0.15), round % 3 * 0.01};
    SharedPath path(rate, round_trip, 0.001);
    path.let_clock_drift(uniform(random, -1e-4, 1e-4));
    const bool from_the_start = round % 2 == 0;
    if (!from_the_start) path.run(3);
    path.flood_back(queue);
    path.run(10);
    path.forget_worst_queue();
    const double before = path.background_bytes();
    path.run(12);
    const std::string where = fmt::format("{:.3g} bytes/s, {:.3f} s, back {:.3f} s, {} lost, {}",
                                          rate, round_trip, queue.most, queue.lost, from_the_start);
    EXPECT_GE(path.background_bytes() - before, 0.9 * 12 * rate) << where;
    // What goes too fast is noticed when its confirmation is here.
    EXPECT_LE(path.worst_queue(), longest_queue(rate) + 0.2 * queue.most) << where;
  }
}

TEST(BackgroundPace, SoItIsWhereBurstsAreOverBeforeTheyCanBeMeasured) {
  constexpr double kRate = 118e6;
  constexpr std::uint64_t kBurst = 416'815;
  constexpr double kEvery = 0.052;
  SharedPath path(kRate, 0.047, 0.0015);
  double before = 0;
  for (int i = 0; i < 100; ++i) {
    if (i == 50) before = path.background_bytes();
    path.burst(kBurst);
    path.run(kEvery);
  }
  EXPECT_GE(path.background_bytes() - before, 0.8 * 50 * (kEvery * kRate - kBurst));
}

TEST(BackgroundPace, AForegroundPeerThatHangsDoesNotHoldAPathThatIsFree) {
  for (const bool known : {false, true}) {
    SharedPath path(12.5e6, 0.01);
    if (known) path.run(5);
    path.send_elsewhere(std::uint64_t{64} << 20);
    path.run(1);
    const double before = path.background_bytes();
    path.run(5);
    EXPECT_GE(path.background_bytes() - before, 0.9 * 5 * 12.5e6) << known;
  }
}

// On a long path something is always in flight, and the uplink is idle all the same.
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
  uplink.change(Priority::foreground, Load::waiting, Load::in_flight);
  EXPECT_FALSE(uplink.foreground_waits());
  EXPECT_TRUE(uplink.foreground_in_flight());
  EXPECT_EQ(uplink.take_due(), Time::min());
  uplink.change(Priority::foreground, Load::in_flight, Load::none);
  EXPECT_FALSE(uplink.foreground_in_flight());
  EXPECT_EQ(uplink.take_due(), Time::min());
  EXPECT_EQ(uplink.take_due(), Time::max());
}

TEST(Uplink, TheEarliestDueRoundCounts) {
  Uplink uplink;
  const Time now{std::chrono::seconds(100)};
  uplink.ask_again_at(now + milliseconds(5));
  uplink.ask_again_at(now + milliseconds(3));
  uplink.ask_again_at(now + milliseconds(4));
  EXPECT_EQ(uplink.take_due(), now + milliseconds(3));
}

}  // namespace
}  // namespace strait::net

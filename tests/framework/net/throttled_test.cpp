// Links over paths whose rate changes at random between 10 kbit/s and 10 Gbit/s, with sudden drops
// and cuts: every frame comes once and in order, and no connection is given up while its bytes
// arrive, which would send the same fragment again for ever. Schedules are seeded and run side by
// side.
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <thread>

#include "framework/mutex.h"
#include "framework/net/simulated_path.h"
#include "tests/campaigns.h"
#include "tests/framework/net/link_pair.h"

namespace strait::net {
namespace {

using Seconds = std::chrono::duration<double>;

double schedule_seconds() { return campaigns() ? 60 : 14; }
// Each schedule begins with a drop that lasts longer than a silent connection is kept.
constexpr double kDropSeconds = 9;

std::uint64_t first_seed() {
  const char* given = std::getenv("STRAIT_SEED");
  return given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device{}();
}

// One link whose ends both send all the time, on a path of its own.
class Throttled {
 public:
  explicit Throttled(std::uint64_t seed) : seed_(seed), random_(seed) {
    EndSetup setup;
    setup.window_bytes = std::uint64_t{1} << (16 + random_() % 8);
    setup.fragment_bytes = std::uint64_t{1} << 20;
    setup.hold = std::chrono::hours(1);
    pair_ = make_zmq_pair(setup, setup, false, {.bits_per_second = 10'000'000'000});
    threads_.emplace_back([this] { send_all(*pair_->left, 0); });
    threads_.emplace_back([this] { send_all(*pair_->right, 1); });
    threads_.emplace_back([this] { receive_all(*pair_->left, 1, taken_[0]); });
    threads_.emplace_back([this] { receive_all(*pair_->right, 0, taken_[1]); });
  }
  ~Throttled() {
    stopping_ = true;
    ending_.notify_all();
    pair_->path->set({});
    for (std::thread& thread : threads_) thread.join();
  }

  void run() {
    await_frames(1);
    const auto until = std::chrono::steady_clock::now() + Seconds(schedule_seconds());
    throttle(exponent(4, 4.6), kDropSeconds);
    if (!starved_) {
      EXPECT_EQ(pair_->path->connections(), 1U) << "seed " << seed_;
      EXPECT_EQ(pair_->left->state().reconnects, 0U) << "seed " << seed_;
    }
    while (std::chrono::steady_clock::now() < until) {
      if (random_() % 4 == 0) {
        pair_->path->cut();
        ++cuts_;
      }
      throttle(exponent(4, 10), std::uniform_real_distribution<double>(0.1, 4)(random_));
    }
    // Whatever happened, it carries on.
    pair_->path->set({});
    await_frames(std::min(taken_[0], taken_[1]) + 20);
    const LinkState state = pair_->left->state();
    // A machine so busy that threads of ours did not run may be the one that was silent.
    if (starved_) return;
    EXPECT_LE(state.reconnects, pair_->path->connections() - 1) << "seed " << seed_;
    // At the lowest rates a connection may be quiet for so long that it is made anew.
    EXPECT_LE(pair_->path->connections() - 1, 2 * cuts_) << "seed " << seed_;
    resent_ = state.resent_fragments + pair_->right->state().resent_fragments;
  }

  std::uint64_t frames() const { return taken_[0] + taken_[1]; }
  std::uint64_t cuts() const { return cuts_; }
  std::uint64_t resent() const { return resent_; }
  bool starved() const { return starved_; }

 private:
  static std::size_t size_of(std::uint64_t number) {
    return number % 7 == 0 ? 300'000 : number * 997 % 20'000;
  }
  double exponent(double low, double high) {
    return std::pow(10, std::uniform_real_distribution<double>(low, high)(random_));
  }
  void throttle(double bits, double duration) {
    PathConditions conditions;
    conditions.bits_per_second = static_cast<std::int64_t>(bits);
    conditions.delay = std::chrono::milliseconds(random_() % 80);
    pair_->path->set(conditions);
    pass(Seconds(duration));
  }
  // Or until the end.
  void pass(Seconds time) {
    const auto until = in_seconds(time.count());
    const MutexLock lock(mutex_);
    while (!stopping_ && ending_.wait_until(mutex_, until)) continue;
    if (std::chrono::steady_clock::now() - until > Seconds(0.5)) starved_ = true;
  }
  void send_all(Link& link, std::uint64_t from) {
    for (std::uint64_t number = 0; !stopping_; ++number) {
      Frame frame = numbered_frame(2 * number + from, size_of(number));
      while (!stopping_ && !link.send_until(frame, in_seconds(0.1))) continue;
      // Bursts show how fast a path is; more would only keep the processor from other schedules.
      pass(std::chrono::milliseconds(10));
    }
  }
  void receive_all(Link& link, std::uint64_t from, std::atomic<std::uint64_t>& taken) {
    while (!stopping_) {
      const auto frame = link.receive_until(in_seconds(0.1));
      if (!frame) continue;
      const std::uint64_t number = taken++;
      ASSERT_EQ(*frame, numbered_frame(2 * number + from, size_of(number)))
          << "frame " << number << " of seed " << seed_;
    }
  }
  void await_frames(std::uint64_t count) {
    while (taken_[0] < count || taken_[1] < count) {
      pass(std::chrono::milliseconds(10));
    }
  }

  const std::uint64_t seed_;
  std::mt19937_64 random_;
  std::unique_ptr<ZmqPair> pair_;
  Mutex mutex_;
  Condition ending_;
  std::atomic<bool> stopping_{false};
  std::atomic<bool> starved_{false};
  std::atomic<std::uint64_t> taken_[2] = {0, 0};
  std::uint64_t cuts_ = 0;
  std::uint64_t resent_ = 0;
  std::vector<std::thread> threads_;
};

TEST(ThrottledPath, CarriesOnAtEveryRateAndSendsNothingTwiceWithoutACut) {
  const std::uint64_t seed = first_seed();
  const char* const given = std::getenv("STRAIT_SCHEDULES");
  const int schedules = given != nullptr ? std::atoi(given) : campaigns() ? 60 : 6;  // 4 minutes
  const int at_once = std::min(schedules, campaigns() ? 20 : 6);
  std::printf("%d schedules from seed %llu on\n", schedules, static_cast<unsigned long long>(seed));
  std::atomic<int> next{0};
  std::atomic<std::uint64_t> frames{0};
  std::atomic<std::uint64_t> cuts{0};
  std::atomic<std::uint64_t> resent{0};
  std::atomic<int> starved{0};
  std::vector<std::thread> runners;
  for (int i = 0; i < at_once; ++i) {
    runners.emplace_back([&] {
      for (int schedule = next++; schedule < schedules; schedule = next++) {
        Throttled throttled(seed + static_cast<std::uint64_t>(schedule));
        throttled.run();
        frames += throttled.frames();
        cuts += throttled.cuts();
        resent += throttled.resent();
        starved += throttled.starved() ? 1 : 0;
      }
    });
  }
  for (std::thread& runner : runners) runner.join();
  std::printf("%llu frames, %llu cuts, %llu fragments again; %d schedules on a starved machine\n",
              static_cast<unsigned long long>(frames), static_cast<unsigned long long>(cuts),
              static_cast<unsigned long long>(resent), starved.load());
}

}  // namespace
}  // namespace strait::net

#include "framework/net/path_conditions.h"

#include <gtest/gtest.h>

#include "framework/net/simulated_path.h"
#include "tests/framework/net/link_pair.h"

namespace strait::net {
namespace {

using Time = PathQueue::Time;
using std::chrono::duration;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::seconds;

double to_seconds(nanoseconds time) { return duration<double>(time).count(); }

// Seconds until this many bytes have arrived that are sent as early as may be, in pieces.
double arrival(PathQueue& queue, std::size_t bytes, std::size_t piece = 1000) {
  const Time begun{seconds(1000)};
  Time now = begun;
  Time arrived = begun;
  for (std::size_t sent = 0; sent < bytes; sent += piece) {
    now = std::max(now, queue.ready());
    const Time next = queue.enter(piece, now);
    EXPECT_GE(next, arrived) << "bytes arrive in order";
    arrived = next;
  }
  return to_seconds(arrived - begun);
}

TEST(PathQueue, TakesRateAndDelay) {
  PathQueue path({.bits_per_second = 80'000'000, .delay = milliseconds(20)}, 1);
  EXPECT_NEAR(arrival(path, 10'000'000), 1.02, 1e-6);
  PathQueue far({.delay = seconds(3)}, 1);
  EXPECT_NEAR(arrival(far, 1'000'000'000, 1'000'000), 3, 1e-9);
}

TEST(PathQueue, SenderIsAheadByTenMilliseconds) {
  PathQueue path({.bits_per_second = 8'000'000}, 1);
  const Time begun{seconds(1000)};
  path.enter(100'000, begun);
  EXPECT_EQ(path.ready(), begun + milliseconds(90));
}

// The model against the formula that forecasts use.
TEST(PathQueue, LossSlowsAsTcpDoes) {
  for (const double loss : {0.0005, 0.002, 0.01}) {
    const PathConditions conditions{
        .bits_per_second = 1'000'000'000, .delay = milliseconds(20), .loss = loss};
    PathQueue path(conditions, 3);
    const double rate = 100e6 / arrival(path, 100'000'000, 1448);
    EXPECT_GT(rate, 0.6 * conditions.mean_bytes_per_second()) << loss;
    EXPECT_LT(rate, 1.7 * conditions.mean_bytes_per_second()) << loss;
  }
}

TEST(PathQueue, LossesRepeatWithTheirSeed) {
  const PathConditions conditions{.delay = milliseconds(5), .loss = 0.01};
  PathQueue one(conditions, 7);
  PathQueue same(conditions, 7);
  PathQueue other(conditions, 8);
  bool differs = false;
  for (int i = 0; i < 1000; ++i) {
    const Time now{seconds(1000 + i)};
    const Time arrived = one.enter(100, now);
    EXPECT_EQ(same.enter(100, now), arrived);
    differs = differs || other.enter(100, now) != arrived;
  }
  EXPECT_TRUE(differs);
}

TEST(PathConditions, ForecastIsBoundByTheRate) {
  EXPECT_EQ((PathConditions{.bits_per_second = 8'000'000}).mean_bytes_per_second(), 1e6);
  EXPECT_EQ((PathConditions{.bits_per_second = 8'000'000, .loss = 1e-6}).mean_bytes_per_second(),
            1e6);
  EXPECT_EQ(PathConditions{}.mean_bytes_per_second(), 0);
  EXPECT_FALSE(PathConditions{}.any());
  EXPECT_FALSE((PathConditions{.cut_for = seconds(5)}).any()) << "it is never cut";
  EXPECT_TRUE((PathConditions{.cut_every = seconds(5)}).any());
}

TEST(SimulatedPath, LinkOverItTakesAtLeastItsRateAndDelay) {
  const auto pair =
      make_zmq_pair({}, {}, false, {.bits_per_second = 40'000'000, .delay = milliseconds(30)});
  pair->left->send(numbered_frame(1, 10));
  EXPECT_EQ(pair->right->receive(), numbered_frame(1, 10));
  const auto begun = std::chrono::steady_clock::now();
  pair->left->send(numbered_frame(2, 1'000'000));  // 0.2 s
  EXPECT_EQ(pair->right->receive(), numbered_frame(2, 1'000'000));
  pair->right->send(numbered_frame(3, 10));
  EXPECT_EQ(pair->left->receive(), numbered_frame(3, 10));
  EXPECT_GE(std::chrono::steady_clock::now() - begun, milliseconds(200 + 30 + 30));
}

TEST(SimulatedPath, CutsAreSurvived) {
  const auto pair =
      make_zmq_pair({}, {}, false, {.cut_every = milliseconds(100), .cut_for = milliseconds(10)});
  for (std::uint64_t i = 0; pair->left->state().reconnects < 3; ++i) {
    pair->left->send(numbered_frame(i, 1000));
    ASSERT_EQ(pair->right->receive(), numbered_frame(i, 1000));
  }
}

}  // namespace
}  // namespace strait::net

#include "framework/net/flow_count.h"

#include <gtest/gtest.h>

#include <random>

namespace strait::net {
namespace {

using std::chrono::milliseconds;

// A sender with always enough to send, over a path that carries `flow` bytes per second in each
// flow and `path` in all of them. Rates vary by a fifth from one moment to the next.
struct Path {
  double flow = 0;
  double path = 0;
  double bbr = 0;     // of a flow with bbr
  bool opens = true;  // the peer can be reached over further flows

  double rate(unsigned flows, bool with_bbr) const {
    return std::min((with_bbr ? bbr : flow) * flows, path);
  }
};

struct Sender {
  FlowCount count;
  std::mt19937_64 random{1};
  FlowCount::Time now{std::chrono::hours(1)};
  double confirmed = 0;
  double flow_seconds = 0;  // of flows in addition to the first
  unsigned most = 1;

  void send(const Path& path, std::chrono::seconds time, std::uint64_t backlog = 1'000'000) {
    constexpr milliseconds kUpdateEvery{20};
    for (const auto end = now + time; now < end; now += kUpdateEvery) {
      const unsigned open = path.opens ? count.wanted() : 1;
      const double noise = std::uniform_real_distribution<double>(0.8, 1.2)(random);
      confirmed += path.rate(open, count.wants_bbr()) * noise * 0.02;
      flow_seconds += (count.wanted() - 1) * 0.02;
      most = std::max(most, count.wanted());
      const auto done = static_cast<std::uint64_t>(confirmed);
      count.update(now, done + backlog, done, open);
    }
  }
};

TEST(FlowCount, GrowsWhileMoreFlowsCarryMore) {
  Sender sender;
  sender.send({.flow = 425'000, .path = 6'250'000}, std::chrono::seconds(30));
  EXPECT_EQ(sender.count.wanted(), kMaxFlows);
}

TEST(FlowCount, StopsWhereThePathIsFull) {
  Sender sender;
  const Path path{.flow = 1'000'000, .path = 2'100'000};
  sender.send(path, std::chrono::seconds(600));
  EXPECT_GE(sender.count.wanted(), 2U);
  EXPECT_LE(sender.most, 4U);
  // Trials of four became rare.
  EXPECT_LT(sender.flow_seconds, 1.15 * 600);
}

TEST(FlowCount, FlowThatFillsThePathRemainsAlmostAlone) {
  Sender sender;
  sender.send({.flow = 12'000'000, .path = 12'000'000}, std::chrono::seconds(600));
  EXPECT_LE(sender.most, 2U);
  EXPECT_LT(sender.flow_seconds, 30);
}

TEST(FlowCount, BbrIsKeptInPlaceOfMoreFlowsWhereItCarriesMore) {
  Sender sender;
  sender.count.offer_bbr(true);
  sender.send({.flow = 425'000, .path = 6'250'000, .bbr = 5'800'000}, std::chrono::seconds(600));
  EXPECT_TRUE(sender.count.wants_bbr());
  EXPECT_EQ(sender.most, 1U);
}

TEST(FlowCount, BbrIsGivenUpWhereItCarriesLess) {
  Sender sender;
  sender.count.offer_bbr(true);
  sender.send({.flow = 425'000, .path = 6'250'000, .bbr = 5'800'000}, std::chrono::seconds(60));
  EXPECT_TRUE(sender.count.wants_bbr());
  sender.send({.flow = 6'000'000, .path = 6'250'000, .bbr = 2'000'000}, std::chrono::seconds(600));
  EXPECT_FALSE(sender.count.wants_bbr());
}

TEST(FlowCount, MoreFlowsAreTriedWhereBbrDoesNotHelpOrIsRefused) {
  for (const bool refused : {false, true}) {
    Sender sender;
    sender.count.offer_bbr(true);
    sender.count.offer_bbr(!refused);
    sender.send({.flow = 425'000, .path = 6'250'000, .bbr = 425'000}, std::chrono::seconds(60));
    EXPECT_EQ(sender.count.wanted(), kMaxFlows);
    EXPECT_FALSE(sender.count.wants_bbr());
  }
}

TEST(FlowCount, PathThatBecomesLossyGetsMoreFlows) {
  Sender sender;
  sender.send({.flow = 12'000'000, .path = 12'000'000}, std::chrono::seconds(60));
  sender.send({.flow = 400'000, .path = 12'000'000}, std::chrono::seconds(200));
  EXPECT_EQ(sender.count.wanted(), kMaxFlows);
}

TEST(FlowCount, SmallMessagesSayNothing) {
  Sender sender;
  sender.send({.flow = 400'000, .path = 12'000'000}, std::chrono::seconds(60), 50'000);
  EXPECT_EQ(sender.most, 1U);
}

TEST(FlowCount, FlowsThatCannotConnectAreNotWaitedForLong) {
  Sender sender;
  sender.send({.flow = 400'000, .path = 12'000'000, .opens = false}, std::chrono::seconds(600));
  EXPECT_LE(sender.most, 2U);
  EXPECT_LT(sender.flow_seconds, 0.2 * 600);
}

TEST(FlowCount, StaysWithinItsLimits) {
  Sender alone{.count = FlowCount(1, 1)};
  alone.send({.flow = 400'000, .path = 12'000'000}, std::chrono::seconds(60));
  EXPECT_EQ(alone.most, 1U);
  Sender several{.count = FlowCount(4, 8)};
  EXPECT_EQ(several.count.wanted(), 4U);
}

}  // namespace
}  // namespace strait::net

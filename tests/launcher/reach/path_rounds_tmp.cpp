#include "launcher/reach/path_probe.h"

#include <gtest/gtest.h>

#include <set>

namespace strait::reach {
namespace {

TEST(ProbeRounds, EveryPairIsMeasuredOnceAndNobodyTwiceAtATime) {
  for (std::size_t hosts = 2; hosts <= 17; ++hosts) {
    std::set<HostPair> seen;
    const auto rounds = probe_rounds(hosts);
    for (const auto& round : rounds) {
      std::set<std::size_t> busy;
      for (const auto& [one, other] : round) {
        EXPECT_LT(one, other);
        EXPECT_LT(other, hosts);
        EXPECT_TRUE(seen.insert({one, other}).second) << one << " and " << other << " twice";
        EXPECT_TRUE(busy.insert(one).second) << one << " measures twice at a time, of " << hosts;
        EXPECT_TRUE(busy.insert(other).second) << other << " measures twice, of " << hosts;
      }
    }
    EXPECT_EQ(seen.size(), hosts * (hosts - 1) / 2);
    EXPECT_EQ(rounds.size(), hosts % 2 == 0 ? hosts - 1 : hosts) << "as few rounds as can be";
  }
}

TEST(ProbeRounds, OneHostHasNobodyToMeasure) {
  EXPECT_TRUE(probe_rounds(1).empty());
  EXPECT_TRUE(probe_rounds(0).empty());
}

}  // namespace
}  // namespace strait::reach

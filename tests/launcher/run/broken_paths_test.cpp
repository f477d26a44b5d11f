#include <gtest/gtest.h>

#include "launcher/run/membership.h"

namespace strait::run {
namespace {

using namespace std::chrono_literals;

constexpr BrokenPaths::Time kStart{};
constexpr BrokenPaths::Time kLater = kStart + 1min;

// The evicted replicas, in order, until no path is broken.
std::vector<std::uint32_t> leave_in_turn(BrokenPaths paths) {
  std::vector<std::uint32_t> left;
  while (const auto eviction = paths.judge(kLater)) {
    left.push_back(eviction->replica);
    paths.leave(eviction->replica);
  }
  return left;
}

BrokenPaths said(const std::vector<std::pair<std::uint32_t, std::uint32_t>>& broken) {
  BrokenPaths paths;
  for (const auto& [from, to] : broken) {
    paths.add(from, to, std::to_string(from) + " has lost " + std::to_string(to), kStart);
  }
  return paths;
}

using Replicas = std::vector<std::uint32_t>;

TEST(BrokenPaths, EvictsOneOfTwoThatLoseEachOther) {
  EXPECT_EQ(leave_in_turn(said({{0, 1}, {1, 0}})), Replicas{1});
  EXPECT_EQ(leave_in_turn(said({{1, 0}})), Replicas{1});  // 0 has not reported yet
}

TEST(BrokenPaths, EvictsOnlyReplicaCutOffFromAll) {
  EXPECT_EQ(leave_in_turn(said({{2, 0}, {2, 1}, {0, 2}, {1, 2}})), Replicas{2});
  EXPECT_EQ(leave_in_turn(said({{0, 1}, {0, 2}, {1, 0}, {2, 0}})), Replicas{0});
}

TEST(BrokenPaths, ReportOfOneEndSuffices) {
  // Each reports the first replica that it misses: 0, which is disconnected, reports 1; 2 reports
  // 0.
  EXPECT_EQ(leave_in_turn(said({{0, 1}, {2, 0}})), Replicas{0});
  // The others compute and have not used their links to 0 yet.
  EXPECT_EQ(leave_in_turn(said({{0, 1}, {0, 2}})), Replicas{0});
}

TEST(BrokenPaths, StagesOfReplicaCountOnce) {
  EXPECT_EQ(leave_in_turn(said({{1, 0}, {1, 0}, {1, 0}, {0, 2}, {2, 0}})), Replicas{0});
  EXPECT_EQ(leave_in_turn(said({{0, 1}, {0, 1}, {1, 0}, {2, 1}, {2, 1}})), Replicas{1});
}

TEST(BrokenPaths, OneOfTwoDisconnectedSitesRemains) {
  EXPECT_EQ(leave_in_turn(said({{0, 2}, {0, 3}, {1, 2}, {1, 3}, {2, 0}, {2, 1}, {3, 0}, {3, 1}})),
            (Replicas{3, 2}));
  EXPECT_EQ(leave_in_turn(said({{0, 2}, {1, 2}, {2, 0}, {3, 0}})), (Replicas{2, 3}));
}

TEST(BrokenPaths, WaitsForReportsOfOthers) {
  BrokenPaths paths;
  EXPECT_FALSE(paths.judge(kLater));
  paths.add(0, 1, "0 has lost 1", kStart);
  EXPECT_FALSE(paths.judge(kStart + 1900ms));
  paths.add(0, 2, "0 has lost 2", kStart + 1900ms);
  EXPECT_FALSE(paths.judge(kStart + 3s));
  paths.add(0, 1, "0 has lost 1, as it said", kStart + 3s);
  ASSERT_TRUE(paths.judge(kStart + 3900ms));
  EXPECT_EQ(paths.judge(kStart + 3900ms)->replica, 0U);
}

TEST(BrokenPaths, PrefersTextReportedByOthers) {
  EXPECT_EQ(said({{1, 0}, {0, 1}}).judge(kLater)->report, "0 has lost 1");
  EXPECT_EQ(said({{1, 0}}).judge(kLater)->report, "1 has lost 0");
}

}  // namespace
}  // namespace strait::run

#include "framework/sync/member_links.h"

#include <gtest/gtest.h>

#include "tests/memory_links.h"

namespace strait::sync {
namespace {

// The one that others wait for may be this replica, when a peer's share came while it looked.
TEST(MemberLinks, CheckForThisReplicaWaitsOnNoLink) {
  auto [left, right] = memory_links({0, 0}, {0, 1}, "replica 0.0~0.1");
  std::vector<std::unique_ptr<net::Link>> row(2);
  row[1] = std::move(left);
  MemberLinks links(std::move(row), {.members = {0, 1}, .mine = 0}, nullptr);
  EXPECT_TRUE(links.check(1).empty());
  EXPECT_NE(links.awaited(), nullptr);
  EXPECT_TRUE(links.check(0).empty());
  EXPECT_EQ(links.awaited(), nullptr);
}

}  // namespace
}  // namespace strait::sync

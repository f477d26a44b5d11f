#include "launcher/transfer/serve_queue.h"

#include <gtest/gtest.h>

namespace strait::transfer {
namespace {

TEST(ServeQueue, RedirectsToPeerThatGotChunk) {
  ServeQueue queue;
  EXPECT_EQ(queue.sent_to_another({0, "x", 7}), std::nullopt);
  queue.push({0, "x", 7});
  EXPECT_EQ(queue.sent_to_another({0, "x", 7}), std::nullopt);
  EXPECT_EQ(queue.sent_to_another({1, "x", 7}), 0U);
  EXPECT_EQ(queue.sent_to_another({1, "x", 7, true}), std::nullopt);
  EXPECT_EQ(queue.sent_to_another({1, "y", 7}), std::nullopt);
  queue.remove_peer(0);
  EXPECT_EQ(queue.sent_to_another({1, "x", 7}), std::nullopt);
  EXPECT_TRUE(queue.empty());
}

TEST(ServeQueue, ServesPeersInTurnAndForcedRequestsLast) {
  ServeQueue queue;
  queue.push({0, "x", 9, true});
  for (std::uint32_t chunk = 0; chunk < 3; ++chunk) queue.push({0, "x", chunk});
  queue.push({1, "x", 5});
  std::vector<std::pair<std::size_t, std::uint32_t>> order;
  while (const auto request = queue.next()) order.emplace_back(request->peer, request->chunk);
  ASSERT_EQ(order.size(), 5U);
  EXPECT_EQ(order.back(), (std::pair<std::size_t, std::uint32_t>{0, 9}));
  const bool early = order[0].first == 1 || order[1].first == 1;
  EXPECT_TRUE(early);
}

TEST(ServeQueue, RefusesTooManyRequestsOfOnePeer) {
  ServeQueue queue;
  for (std::uint32_t chunk = 0; chunk < ServeQueue::kMostWaiting; ++chunk) {
    EXPECT_TRUE(queue.push({3, "x", chunk}));
  }
  EXPECT_FALSE(queue.push({3, "x", 1000}));
  EXPECT_TRUE(queue.push({2, "x", 1000}));
}

}  // namespace
}  // namespace strait::transfer

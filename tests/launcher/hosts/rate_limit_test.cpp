#include <gtest/gtest.h>

#include "launcher/hosts/file_server.h"

namespace strait::transfer {
namespace {

TEST(RateLimit, KeepsAverageAndAllowsNoBurst) {
  const RateLimit::Time start{std::chrono::seconds(1000)};
  RateLimit limit(1000);
  limit.add(start, 500);
  EXPECT_EQ(limit.due(), start + std::chrono::milliseconds(500));
  limit.add(start + std::chrono::milliseconds(500), 1000);
  EXPECT_EQ(limit.due(), start + std::chrono::milliseconds(1500));
  limit.add(start + std::chrono::seconds(60), 1000);
  EXPECT_EQ(limit.due(), start + std::chrono::seconds(61));
  RateLimit none;
  none.add(start, 1 << 30);
  EXPECT_LE(none.due(), start);
}

}  // namespace
}  // namespace strait::transfer

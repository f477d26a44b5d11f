#include "launcher/base/nearest_name.h"

#include <gtest/gtest.h>

#include <array>
#include <string>

namespace strait::base {
namespace {

constexpr std::array<std::string_view, 4> kKnown = {"forward", "backward", "group", "cache"};

TEST(NearestName, FindsWhatOneSlipOfTheFingersMade) {
  EXPECT_EQ(nearest_name("foward", kKnown), "forward");
  EXPECT_EQ(nearest_name("gruop", kKnown), "group");
  EXPECT_EQ(nearest_name("caches", kKnown), "cache");
  EXPECT_EQ(nearest_name("backwrad", kKnown), "backward");
}

TEST(NearestName, ProposesNothingRatherThanAGuess) {
  EXPECT_EQ(nearest_name("temperature", kKnown), "");
  EXPECT_EQ(nearest_name("", kKnown), "");
  EXPECT_EQ(nearest_name("forward", {}), "");
  EXPECT_EQ(nearest_name(std::string(100'000, 'a'), kKnown), "");
}

}  // namespace
}  // namespace strait::base

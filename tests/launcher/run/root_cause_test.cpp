#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launcher/run/outcome.h"

namespace strait::run {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

const Finding kLost{net::ProcessName{0, 0}, base::ExitCode::peer_lost, "0 lost 1", true};
const Finding kKilled{net::ProcessName{1, 0}, base::ExitCode::peer_lost, "1 was killed", false};
const Finding kAlso{net::ProcessName{2, 0}, base::ExitCode::internal, "2 broke too", false};

TEST(RootCause, FirstFindingIsCause) {
  RootCause first;
  EXPECT_TRUE(first.add(kKilled));
  EXPECT_FALSE(first.add(kAlso));
  EXPECT_FALSE(first.add(kLost));
  EXPECT_EQ(first.cause()->sentence, "1 was killed");
  EXPECT_THAT(first.followers(), ElementsAre("2 broke too", "0 lost 1"));
}

TEST(RootCause, CauseReplacesEffect) {
  RootCause first;
  first.add(kLost);
  EXPECT_TRUE(first.add(kKilled));
  EXPECT_EQ(first.cause()->sentence, "1 was killed");
  EXPECT_THAT(first.followers(), ElementsAre("0 lost 1"));
}

TEST(RootCause, EffectAloneIsCause) {
  RootCause first;
  EXPECT_FALSE(first.cause().has_value());
  first.add(kLost);
  EXPECT_EQ(first.cause()->sentence, "0 lost 1");
  EXPECT_THAT(first.followers(), IsEmpty());
}

TEST(RootCause, CauseIsNotListedAsFollower) {
  RootCause first;
  Finding link_over = kKilled;
  link_over.effect = true;
  link_over.sentence = "1 hung up";
  first.add(link_over);
  EXPECT_TRUE(first.add(kKilled));
  first.add(link_over);
  EXPECT_EQ(first.cause()->sentence, "1 was killed");
  EXPECT_THAT(first.followers(), IsEmpty());
}

TEST(RootCause, FollowerThatBecomesCauseIsRemoved) {
  RootCause first;
  first.add(kLost);
  Finding link_over = kKilled;
  link_over.effect = true;
  first.add(link_over);
  EXPECT_THAT(first.followers(), ElementsAre("1 was killed"));
  EXPECT_TRUE(first.add(kKilled));
  EXPECT_THAT(first.followers(), ElementsAre("0 lost 1"));
}

}  // namespace
}  // namespace strait::run

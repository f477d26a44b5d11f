#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launcher/planner/plan_maker.h"
#include "launcher/recipe/speeds.h"
#include "tests/launcher/user_error.h"

namespace strait::planner {
namespace {

using testing::HasSubstr;

// Two hosts, of which a was measured, and the link between them.
struct Case {
  recipe::Recipe recipe;
  recipe::LinkTable speeds;

  Case() {
    recipe.hosts.list = {{.name = "a", .tflops = 3}, {.name = "b"}};
    speeds.hosts = {{.name = "a", .flops_per_second = 2e12}};
    speeds.links = {{"a", "b", 3e8, 0, 0.005}};
  }
  void apply(const std::string& sentence) { apply_what_if(sentence, recipe, speeds); }
};

TEST(WhatIf, LinkGetsARateInBothDirections) {
  Case one;
  one.apply("link a b 100mbit");
  ASSERT_EQ(one.speeds.links.size(), 2U);
  EXPECT_EQ(one.speeds.link("a", "b")->bits_per_second, 1e8);
  EXPECT_EQ(one.speeds.link("b", "a")->bits_per_second, 1e8);
  EXPECT_EQ(one.speeds.link("a", "b")->seconds, 0.005) << "stays";
  one.apply("link b a 2Gbit/s 20ms");
  EXPECT_EQ(one.speeds.link("a", "b")->bits_per_second, 2e9);
  EXPECT_EQ(one.speeds.link("a", "b")->seconds, 0.02);
}

TEST(WhatIf, LinkThatIsNotMeasuredKeepsTheLatencyThatIsAssumed) {
  Case one;
  one.speeds.links = {};
  one.apply("link a b 1Gbit/s");
  EXPECT_EQ(one.speeds.link("b", "a")->seconds, plan::kAssumedLineSeconds);
  one.speeds.links = {};
  one.recipe.hosts.link_megabits = 100;
  one.apply("link a b 1Gbit/s");
  EXPECT_EQ(one.speeds.link("a", "b")->seconds, 0) << "a stated line has none";
}

TEST(WhatIf, LinkIsNotHeldBackByStatedLines) {
  Case one;
  one.speeds.links = {};
  one.recipe.hosts.link_megabits = 100;
  one.recipe.hosts.list[0].uplink_megabits = 20;
  one.recipe.hosts.list[1].downlink_megabits = 5000;
  one.apply("link a b 1Gbit/s");
  plan::Plan plan;
  plan.recipe = one.recipe;
  plan.speeds = one.speeds;
  plan.hosts = {{.name = "a"}, {.name = "b"}};
  EXPECT_EQ(plan::path_speed(plan, 0, 1).bytes_per_second, 1e9 / 8);
  EXPECT_EQ(plan::path_speed(plan, 1, 0).bytes_per_second, 1e9 / 8);
  EXPECT_EQ(one.recipe.hosts.list[1].downlink_megabits, 5000) << "wide enough";
}

TEST(WhatIf, HostIsGone) {
  Case one;
  one.recipe.pipeline.hosts = {"b", "a"};
  one.apply("without b");
  ASSERT_EQ(one.recipe.hosts.list.size(), 1U);
  EXPECT_TRUE(one.recipe.pipeline.hosts.empty());
  EXPECT_TRUE(one.recipe.pipeline.choose_stages);
}

TEST(WhatIf, HostIsAddedWithTheSpeedsOfAnother) {
  Case one;
  one.apply("add d like a");
  ASSERT_EQ(one.recipe.hosts.list.size(), 3U);
  EXPECT_EQ(one.recipe.hosts.list.back().name, "d");
  EXPECT_EQ(one.recipe.hosts.list.back().tflops, 3);
  EXPECT_EQ(one.speeds.host("d")->flops_per_second, 2e12);
  EXPECT_EQ(one.speeds.link("d", "b")->bits_per_second, 3e8);
  EXPECT_EQ(one.speeds.link("d", "a")->bits_per_second, 3e8);
}

TEST(WhatIf, WrongSentencesSayWhatIsAllowed) {
  const auto refusal = [](const std::string& sentence) {
    return base::user_error(base::ExitCode::bad_input, [&] { Case().apply(sentence); });
  };
  EXPECT_THAT(refusal("faster"), HasSubstr("write \"link A B 100Mbit/s\""));
  EXPECT_THAT(refusal("without z"), HasSubstr("hosts.list has no z; it has a, b"));
  EXPECT_THAT(refusal("link a b fast"), HasSubstr("fast is no rate"));
  EXPECT_THAT(refusal("link a a 1Gbit/s"), HasSubstr("two hosts"));
  EXPECT_THAT(refusal("add a like b"), HasSubstr("has a already"));
  Case simulated;
  simulated.recipe.hosts.simulate.bits_per_second = 10'000'000;
  EXPECT_THAT(
      base::user_error(base::ExitCode::bad_input, [&] { simulated.apply("link a b 100mbit"); }),
      HasSubstr("hosts.simulate sets the speed of all links"));
}

}  // namespace
}  // namespace strait::planner

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launcher/base/errors.h"
#include "launcher/planner/planned_sync.h"
#include "launcher/recipe/recipe_io.h"
#include "launcher/recipe/recipe_sync_keys.h"
#include "tests/launcher/user_error.h"

namespace strait::planner {
namespace {

// A run of 62 steps with this in its [sync], whose first line is x.toml:8.
plan::Plan plan_of(const std::string& sync, const std::vector<std::string>& overrides = {},
                   const std::string& length = "steps = 62") {
  plan::Plan plan;
  plan.recipe = recipe::parse_recipe(
      "model.path = \"m\"\ndata.train = \"t\"\n[pipeline]\nreplicas = 2\n"
      "[train]\n" +
          length + "\n[sync]\n" + sync,
      "x.toml", overrides);
  plan.sync_method = recipe::sync_method_of(plan.recipe);
  plan.steps = 62;
  return plan;
}

std::string refusal(const plan::Plan& plan) {
  return base::user_error(base::ExitCode::bad_input, [&] {
    check_sync_settings(plan);
    check_loss_rule(plan);
  });
}

TEST(SyncRules, RefusesImpossibleFragmentsWithKeysAndOrigins) {
  const std::string streaming = "method = \"streaming_diloco\"\n";
  EXPECT_EQ(refusal(plan_of(streaming + "every = 3\n")),
            "sync.fragments is 4 (the default), but sync.every is 3 (x.toml:9:9), and each "
            "fragment takes its turn at another update; set sync.fragments to 3 or less, or "
            "sync.every to 4 or more");
  EXPECT_EQ(
      refusal(plan_of(streaming + "every = 8\n", {"sync.late=3"})),
      "sync.late is 3 (--set sync.late=3), but sync.every is 8 (x.toml:9:9) and "
      "sync.fragments is 4 (the default), so that the next fragment's turn comes 2 updates "
      "later, and at most one round is in progress; set sync.late to 2 or less, or sync.every "
      "to 12 or more");
  EXPECT_EQ(refusal(plan_of(streaming + "bits = 1\n")),
            "sync.bits is 1 (x.toml:9:8), but sync.method is \"streaming_diloco\" (x.toml:8:10), "
            "which sends values in 2 to 8 bits; set sync.bits to 2 or more");
  for (const char* fits : {"every = 4\n", "every = 8\nlate = 2\n", "fragments = 100\n",
                           "bits = 2\n", "late = 25\n", "fragments = 1\nlate = 100\n"}) {
    EXPECT_EQ(refusal(plan_of(streaming + fits)), "") << fits;
  }
}

TEST(SyncRules, RefusesContinuingWithoutReplicasForMethodsThatNeedAll) {
  EXPECT_THAT(
      refusal(plan_of("method = \"cocktail\"\non_loss = \"continue\"\n", {"sync.method=noloco"})),
      testing::StartsWith("sync.on_loss is \"continue\" (x.toml:9:11), but sync.method is "
                          "\"noloco\" (--set sync.method=noloco), which cannot continue without a "
                          "replica: it averages all replicas"));
}

// A refusal by the method's constructor quotes all settings of the method that the recipe states.
TEST(SyncRules, ReportsSettingsThatTheMethodRefusesWithTheirKeys) {
  plan::Plan plan = plan_of("method = \"powersgd\"\nrank = 4\n");
  plan.recipe.sync.rank = 100'000;
  EXPECT_THAT(
      refusal(plan),
      testing::StartsWith("sync.method is \"powersgd\" (x.toml:8:10), sync.rank is 100000 "
                          "(x.toml:9:8): these settings contradict each other: powersgd: rank is "
                          "100000; it must be from 1 to 1024"));
}

TEST(SyncRules, RecipesWithDifferentOriginsAreEqual) {
  const recipe::Recipe file = plan_of("method = \"powersgd\"\nrank = 4\n").recipe;
  const recipe::Recipe line = plan_of("rank = 4\nmethod = \"powersgd\"\n", {"sync.rank=4"}).recipe;
  EXPECT_NE(file.origins.of("sync.rank"), line.origins.of("sync.rank"));
  EXPECT_EQ(file, line);
}

}  // namespace
}  // namespace strait::planner

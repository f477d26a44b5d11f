#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launcher/base/errors.h"
#include "launcher/recipe/placement.h"
#include "launcher/recipe/plan.h"
#include "tests/launcher/user_error.h"

namespace strait::plan {
namespace {

using testing::AllOf;
using testing::HasSubstr;

Plan plan_with(std::optional<std::int64_t> threads, std::int64_t cores) {
  Plan plan;
  plan.hosts = {{.name = "a"}, {.name = "b", .cores = cores}};
  plan.recipe.pipeline.threads = threads;
  plan.recipe.origins.by_key["pipeline.threads"] = "x.toml:3:11";
  return plan;
}

TEST(ThreadLimit, MoreThreadsThanCoresAreRefusedWithPlaceHostAndCores) {
  EXPECT_THAT(
      base::user_error(base::ExitCode::bad_input, [] { check_threads(plan_with(3, 2), 1); }),
      AllOf(HasSubstr("pipeline.threads is 3 (x.toml:3:11), but host b has 2 cores"),
            HasSubstr("set it to 2 or fewer, or to \"auto\"")));
  EXPECT_THAT(
      base::user_error(base::ExitCode::bad_input, [] { check_threads(plan_with(2, 1), 1); }),
      HasSubstr("host b has 1 core; set it to 1, or to"));
}

TEST(ThreadLimit, AsManyAsCoresAndUnknownCoresAreNot) {
  EXPECT_NO_THROW(check_threads(plan_with(2, 2), 1));
  EXPECT_NO_THROW(check_threads(plan_with(std::nullopt, 2), 1));
  EXPECT_NO_THROW(check_threads(plan_with(1024, 0), 1));
  EXPECT_EQ(thread_warning(plan_with(2, 2), 1), "");
}

TEST(ThreadLimit, RunThatHasBegunIsToldWhatItsThreadsCost) {
  EXPECT_THAT(thread_warning(plan_with(3, 2), 1),
              AllOf(HasSubstr("host b has 2 cores"), HasSubstr("keeps its threads for equal bits"),
                    HasSubstr("--set pipeline.threads=2")));
}

}  // namespace
}  // namespace strait::plan

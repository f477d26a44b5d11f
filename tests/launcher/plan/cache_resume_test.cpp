#include "launcher/plan/cache_resume.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace strait::plan {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

Plan plan_with(const std::string& forward, int upper_last = 2, std::int64_t entry = 1024) {
  Plan plan;
  plan.recipe.codec.forward = forward;
  Plan::Process upper;
  upper.name = {0, 0};
  upper.chunks = {{0, upper_last}};
  plan.processes = {upper};
  Plan::Link link;
  link.name = "boundary 0.0>1.0";
  link.connects = {0, 0};
  link.listens = {1, 0};
  link.entry_bytes = forward == "delta" ? entry : 0;
  link.cache_bytes = 4096;
  plan.links = {link};
  return plan;
}

store::Manifest checkpoint_of(const Plan& plan, std::int64_t generation) {
  store::Manifest manifest;
  manifest.step = store::Step{7};
  manifest.codec_generation = generation;
  if (const auto kept = caches_kept(plan); !kept.empty()) manifest.notes[kCachesNote] = kept;
  return manifest;
}

TEST(CacheResume, TheSamePipelineGoesOnWithWhatItRemembered) {
  const Plan plan = plan_with("delta");
  const CacheResume resume = decide_caches(checkpoint_of(plan, 3), plan);
  EXPECT_TRUE(resume.restore);
  EXPECT_EQ(resume.generation, 3);
  EXPECT_THAT(resume.dropped, IsEmpty());
}

TEST(CacheResume, AnythingElseDropsItEverywhereUnderANewGenerationAndSaysWhy) {
  const Plan plan = plan_with("delta");
  const auto dropped = [&](const Plan& before, const Plan& after) {
    const CacheResume resume = decide_caches(checkpoint_of(before, 3), after);
    EXPECT_FALSE(resume.restore);
    EXPECT_EQ(resume.generation, 4);
    return resume.dropped;
  };
  EXPECT_THAT(dropped(plan_with("delta", 1), plan), HasSubstr("behind layer 1"));
  EXPECT_THAT(dropped(plan_with("delta", 2, 512), plan), HasSubstr("512 bytes a row"));
  EXPECT_THAT(dropped(plan_with("raw"), plan), HasSubstr("step 7 holds none"));
  Plan forgetful = plan;
  forgetful.recipe.checkpoint.caches = recipe::SavedCaches::drop;
  EXPECT_THAT(dropped(plan, forgetful), HasSubstr("checkpoint.caches is \"drop\""));
  EXPECT_THAT(dropped(forgetful, plan), HasSubstr("holds none"));
}

TEST(CacheResume, ARunThatRemembersNothingHasNothingToDrop) {
  const CacheResume resume =
      decide_caches(checkpoint_of(plan_with("delta"), 3), plan_with("fixed"));
  EXPECT_FALSE(resume.restore);
  EXPECT_EQ(resume.generation, 3);
  EXPECT_THAT(resume.dropped, IsEmpty());
}

}  // namespace
}  // namespace strait::plan

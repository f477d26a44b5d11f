#include "launcher/plan/sync_resume.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace strait::plan {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

Plan plan_of(std::int64_t replicas, const std::string& method = "cocktail", int cut = 2) {
  Plan plan;
  plan.recipe.pipeline.replicas = replicas;
  if (replicas > 1) plan.recipe.sync.method = method;
  plan.sync_method = replicas > 1 ? method : "";
  for (std::uint32_t replica = 0; replica < replicas; ++replica) {
    plan.processes.resize(plan.processes.size() + 2);
    Plan::Process& lower = plan.processes.back();
    Plan::Process& upper = plan.processes[plan.processes.size() - 2];
    upper.name = {0, replica};
    upper.chunks = {{0, cut}};
    lower.name = {1, replica};
    lower.chunks = {{cut + 1, 5}};
  }
  return plan;
}

store::Manifest of(const Plan& plan) {
  store::Manifest manifest;
  manifest.step = store::Step{7};
  manifest.sync = sync_kept(plan);
  return manifest;
}

std::string restarted(const Plan& before, const Plan& after) {
  const SyncResume resume = decide_sync(of(before), after);
  EXPECT_EQ(resume.exact, resume.restarted.empty());
  return resume.restarted;
}

TEST(SyncResume, TheSameReplicasGoOnExactly) {
  EXPECT_THAT(restarted(plan_of(3), plan_of(3)), IsEmpty());
  EXPECT_THAT(restarted(plan_of(1), plan_of(1)), IsEmpty());
  EXPECT_THAT(sync_kept(plan_of(1)), IsEmpty());
}

// What the others hold may owe to one that is not there.
TEST(SyncResume, WhoGoOnWithoutOneStartFromTheModel) {
  const SyncResume resume = decide_sync(of(plan_of(3)), plan_of(3), {1});
  EXPECT_FALSE(resume.exact);
  EXPECT_THAT(resume.restarted, HasSubstr("goes on with no replica 1"));
}

TEST(SyncResume, AnotherCutOfASinglePipelineIsNoMatterOfSync) {
  EXPECT_THAT(restarted(plan_of(1, "", 1), plan_of(1, "", 3)), IsEmpty());
}

TEST(SyncResume, WhateverElseDiffersIsNamed) {
  EXPECT_THAT(restarted(plan_of(2), plan_of(3)),
              testing::AllOf(HasSubstr("step 7"), HasSubstr("replicas 3 instead of 2")));
  EXPECT_THAT(restarted(plan_of(2), plan_of(1)), HasSubstr("replicas none instead of 2"));
  EXPECT_THAT(restarted(plan_of(2), plan_of(2, "powersgd")),
              HasSubstr("method powersgd instead of cocktail"));
  EXPECT_THAT(restarted(plan_of(2), plan_of(2, "cocktail", 3)),
              HasSubstr("layers 0-3, 4-5 instead of 0-2, 3-5"));
  Plan other = plan_of(2);
  other.recipe.sync.top = 0.5;
  EXPECT_THAT(restarted(plan_of(2), other), HasSubstr("settings {"));
  Plan chosen = plan_of(2, "auto");
  chosen.sync_method = "cocktail";
  chosen.sync_strength = sync::Strength{0.25, 1, 1};
  EXPECT_THAT(restarted(chosen, chosen), IsEmpty());
  other = plan_of(2);
  other.recipe.sync.random = 0.25;
  other.recipe.sync.top = 1;
  other.recipe.sync.bits = 1;
  EXPECT_THAT(restarted(chosen, other), IsEmpty());  // said or chosen, it is the same
  other = chosen;
  other.sync_strength->random = 0.5;
  EXPECT_THAT(restarted(chosen, other), HasSubstr("settings {"));
  other = plan_of(2);
  other.recipe.train.learning_rate = 0.5;
  EXPECT_THAT(restarted(plan_of(2), other), IsEmpty());
}

// What a recipe leaves unsaid is what it has: a rule for losses added to it changes no method.
TEST(SyncResume, ARecipeWithoutSyncIsLikeOneThatSaysTheSame) {
  Plan silent = plan_of(2, "");
  silent.sync_method = "allreduce";
  Plan goes_on = silent;
  goes_on.recipe.sync.on_loss = recipe::LossRule::go_on;
  const Plan says_so = plan_of(2, "allreduce");
  Plan narrow = silent;
  narrow.recipe.sync.wire_dtype = recipe::Dtype::bfloat16;
  for (const Plan& before : {silent, goes_on, says_so}) {
    for (const Plan& after : {silent, goes_on, says_so}) {
      EXPECT_THAT(restarted(before, after), IsEmpty());
    }
    EXPECT_THAT(restarted(before, narrow), HasSubstr("bfloat16"));
  }
}

}  // namespace
}  // namespace strait::plan

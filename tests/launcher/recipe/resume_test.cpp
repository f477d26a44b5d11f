#include "launcher/recipe/resume.h"

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
  link.cache.entry_bytes = forward == "delta" || forward == "transform" ? entry : 0;
  link.cache.memory_bytes = 4096;
  plan.links = {link};
  return plan;
}

store::Manifest checkpoint_of(const Plan& plan, std::int64_t generation) {
  store::Manifest manifest;
  manifest.step = store::Step{7};
  manifest.codec_generation = generation;
  if (const auto kept = saved_caches(plan); !kept.empty()) manifest.notes[kCachesNote] = kept;
  return manifest;
}

TEST(CacheResume, RestoresCachesForSamePipeline) {
  const Plan plan = plan_with("delta");
  const CacheResume resume = decide_caches(checkpoint_of(plan, 3), plan);
  EXPECT_TRUE(resume.restore);
  EXPECT_EQ(resume.generation, 3);
  EXPECT_THAT(resume.dropped, IsEmpty());
}

TEST(CacheResume, DropsCachesUnderNewGenerationIfAnythingDiffers) {
  const Plan plan = plan_with("delta");
  const auto dropped = [&](const Plan& before, const Plan& after) {
    const CacheResume resume = decide_caches(checkpoint_of(before, 3), after);
    EXPECT_FALSE(resume.restore);
    EXPECT_EQ(resume.generation, 4);
    return resume.dropped;
  };
  EXPECT_THAT(dropped(plan_with("delta", 1), plan), HasSubstr("after layer 1"));
  EXPECT_THAT(dropped(plan_with("delta", 2, 512), plan), HasSubstr("512 bytes a row"));
  EXPECT_THAT(dropped(plan_with("raw"), plan), HasSubstr("step 7 has none"));
}

TEST(CacheResume, StateOfTransformIsRestoredBySameCodecsOnly) {
  Plan gradients = plan_with("raw");
  gradients.recipe.codec.backward = "transform";
  EXPECT_TRUE(decide_caches(checkpoint_of(gradients, 3), gradients).restore);
  Plan slices = gradients;
  slices.slices = 4;
  EXPECT_FALSE(decide_caches(checkpoint_of(gradients, 3), slices).restore);
  const Plan both = plan_with("transform");
  EXPECT_TRUE(decide_caches(checkpoint_of(both, 3), both).restore);
  // Entries of the same size, which mean something else.
  EXPECT_FALSE(decide_caches(checkpoint_of(plan_with("delta"), 3), both).restore);
  EXPECT_FALSE(decide_caches(checkpoint_of(both, 3), plan_with("delta")).restore);
  EXPECT_FALSE(decide_caches(checkpoint_of(plan_with("raw"), 3), gradients).restore);
}

TEST(CacheResume, KeepsGenerationIfRunHasNoCaches) {
  const CacheResume resume =
      decide_caches(checkpoint_of(plan_with("delta"), 3), plan_with("fixed"));
  EXPECT_FALSE(resume.restore);
  EXPECT_EQ(resume.generation, 3);
  EXPECT_THAT(resume.dropped, IsEmpty());
}

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
  manifest.sync = saved_sync(plan);
  return manifest;
}

std::string restarted(const Plan& before, const Plan& after) {
  const SyncResume resume = decide_sync(of(before), after);
  EXPECT_EQ(resume.exact, resume.restarted.empty());
  return resume.restarted;
}

TEST(SyncResume, IsExactForSameReplicas) {
  EXPECT_THAT(restarted(plan_of(3), plan_of(3)), IsEmpty());
  EXPECT_THAT(restarted(plan_of(1), plan_of(1)), IsEmpty());
  Plan shares = plan_of(3);
  shares.recipe.sync.share_state = true;
  EXPECT_THAT(restarted(plan_of(3), shares), IsEmpty());
  EXPECT_THAT(saved_sync(plan_of(1)), IsEmpty());
}

// State of the others can contain contributions owed to the missing replica.
TEST(SyncResume, StartsFromModelIfReplicaIsMissing) {
  const SyncResume resume = decide_sync(of(plan_of(3)), plan_of(3), {1});
  EXPECT_FALSE(resume.exact);
  EXPECT_THAT(resume.restarted, HasSubstr("resumes with no replica 1"));
}

TEST(SyncResume, IsExactForSinglePipelineWithOtherLayers) {
  EXPECT_THAT(restarted(plan_of(1, "", 1), plan_of(1, "", 3)), IsEmpty());
}

TEST(SyncResume, NamesEveryDifference) {
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
  EXPECT_THAT(restarted(chosen, other), IsEmpty());  // set in the recipe or chosen by auto
  other = chosen;
  other.sync_strength->random = 0.5;
  EXPECT_THAT(restarted(chosen, other), HasSubstr("settings {"));
  other = plan_of(2);
  other.recipe.train.learning_rate = 0.5;
  EXPECT_THAT(restarted(plan_of(2), other), IsEmpty());
}

// Other groups have other states, but for exact sums, which have none.
TEST(SyncResume, IsExactForSameGroups) {
  const auto in_groups = [](const std::string& method, const std::vector<std::uint32_t>& leaders) {
    Plan plan = plan_of(4, method);
    for (Plan::Process& process : plan.processes) process.group = leaders[process.name.replica];
    return plan;
  };
  const Plan pairs = in_groups("cocktail", {0, 0, 2, 2});
  EXPECT_THAT(restarted(pairs, pairs), IsEmpty());
  EXPECT_THAT(restarted(pairs, plan_of(4)), HasSubstr("groups none instead of 0, 1 | 2, 3"));
  EXPECT_THAT(restarted(plan_of(4), pairs), HasSubstr("groups 0, 1 | 2, 3 instead of none"));
  EXPECT_THAT(restarted(pairs, in_groups("cocktail", {0, 1, 0, 1})),
              HasSubstr("groups 0, 2 | 1, 3 instead of 0, 1 | 2, 3"));
  EXPECT_THAT(restarted(in_groups("allreduce", {0, 0, 2, 2}), plan_of(4, "allreduce")), IsEmpty());
}

// Keys that are left out have their defaults; sync.on_loss and sync.group do not change what is
// learnt.
TEST(SyncResume, TreatsDefaultsLikeTheirExplicitValues) {
  Plan implicit = plan_of(2, "");
  implicit.sync_method = "allreduce";
  Plan with_rule = implicit;
  with_rule.recipe.sync.on_loss = recipe::LossRule::continue_run;
  Plan in_group = implicit;
  in_group.recipe.sync.group = recipe::GroupUse::always;
  const Plan stated = plan_of(2, "allreduce");
  Plan narrow = implicit;
  narrow.recipe.sync.wire_dtype = recipe::Dtype::bfloat16;
  for (const Plan& before : {implicit, with_rule, in_group, stated}) {
    for (const Plan& after : {implicit, with_rule, in_group, stated}) {
      EXPECT_THAT(restarted(before, after), IsEmpty());
    }
    EXPECT_THAT(restarted(before, narrow), HasSubstr("bfloat16"));
  }
}

}  // namespace
}  // namespace strait::plan

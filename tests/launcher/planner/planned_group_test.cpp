#include "launcher/planner/planned_group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launcher/base/errors.h"

namespace strait::planner {
namespace {

// Two stages of two replicas; `apart`: the replicas of stage 1 are on two hosts.
plan::Plan plan_of(bool apart) {
  plan::Plan plan;
  plan.recipe.pipeline.stages = plan.recipe.pipeline.replicas = 2;
  plan.sync_method = "allreduce";
  plan.hosts = {{.name = "a"}, {.name = "b"}};
  for (std::uint32_t replica = 0; replica < 2; ++replica) {
    for (std::uint32_t stage = 0; stage < 2; ++stage) {
      plan::Plan::Process process;
      process.name = {stage, replica};
      process.host_index = apart && stage == 1 && replica == 1 ? 1 : 0;
      plan.processes.push_back(process);
    }
  }
  return plan;
}

TEST(PlannedGroup, IsTriedByStagesWhoseReplicasShareHost) {
  const plan::Plan together = plan_of(false);
  const plan::Plan apart = plan_of(true);
  EXPECT_TRUE(tries_group(together, 0));
  EXPECT_TRUE(tries_group(together, 1));
  EXPECT_TRUE(tries_group(apart, 0));
  EXPECT_FALSE(tries_group(apart, 1));
  EXPECT_EQ(group_text(together), "by NCCL between GPUs of one host");
}

TEST(PlannedGroup, IsNotTriedOnCpusByOtherMethodsOrWhereReplicasMayLeave) {
  plan::Plan plan = plan_of(false);
  plan.recipe.model.device = recipe::Device::cpu;
  EXPECT_FALSE(tries_group(plan, 0));
  plan = plan_of(false);
  plan.recipe.sync.group = recipe::GroupUse::never;
  EXPECT_FALSE(tries_group(plan, 0));
  plan = plan_of(false);
  plan.recipe.sync.on_loss = recipe::LossRule::continue_run;
  EXPECT_FALSE(tries_group(plan, 0));
  plan = plan_of(false);
  plan.sync_method = "cocktail";
  EXPECT_FALSE(tries_group(plan, 0));
  EXPECT_EQ(group_text(plan), "");
}

TEST(PlannedGroup, IsTriedBetweenHostsAndOnCpusIfAskedFor) {
  plan::Plan plan = plan_of(true);
  plan.recipe.sync.group = recipe::GroupUse::always;
  EXPECT_TRUE(tries_group(plan, 1));
  plan = plan_of(false);
  plan.recipe.sync.group = recipe::GroupUse::always;
  plan.recipe.model.device = recipe::Device::cpu;
  EXPECT_TRUE(tries_group(plan, 1));
  EXPECT_EQ(group_text(plan), "in shared memory");
}

std::string refusal(const plan::Plan& plan) {
  try {
    check_group(plan);
  } catch (const base::UserError& error) {
    return error.what();
  }
  return "";
}

TEST(PlannedGroup, ThatIsImpossibleIsRefusedWithBothKeys) {
  plan::Plan plan = plan_of(true);
  plan.recipe.sync.group = recipe::GroupUse::always;
  EXPECT_EQ(refusal(plan), "");
  plan.recipe.model.device = recipe::Device::cpu;
  EXPECT_THAT(refusal(plan), testing::AllOf(testing::HasSubstr("sync.group is \"always\""),
                                            testing::HasSubstr("CPUs of several hosts")));
  plan.recipe.sync.on_loss = recipe::LossRule::continue_run;
  EXPECT_THAT(refusal(plan), testing::AllOf(testing::HasSubstr("sync.on_loss is \"continue\""),
                                            testing::HasSubstr("a group cannot lose a replica")));
}

}  // namespace
}  // namespace strait::planner

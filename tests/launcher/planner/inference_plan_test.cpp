#include <gtest/gtest.h>

#include "launcher/planner/plan_maker.h"

namespace strait::planner {
namespace {

// Two replicas of one stage each; the plan chose the size of their micro-batches.
TEST(InferencePlan, HasOneReplicaWithTheMicroBatchesOfTheRun) {
  plan::Plan trained;
  trained.recipe.train.batch = 24;
  trained.recipe.train.micro_batch.reset();
  trained.recipe.pipeline.replicas = 2;
  trained.micro_batches = 4;
  trained.hosts = {{"a"}, {"b"}};
  for (const std::uint32_t replica : {0U, 1U}) {
    plan::Plan::Process& process = trained.processes.emplace_back();
    process.name = {0, replica};
    process.host_index = replica;
  }
  EXPECT_EQ(trained.micro_batch_rows(), 3);
  const plan::Plan plan = inference_plan(trained);
  EXPECT_EQ(plan.recipe.pipeline.replicas, 1);
  EXPECT_EQ(plan.processes.size(), 1U);
  EXPECT_EQ(plan.hosts.size(), 1U);
  EXPECT_EQ(plan.micro_batch_rows(), 3);
}

}  // namespace
}  // namespace strait::planner

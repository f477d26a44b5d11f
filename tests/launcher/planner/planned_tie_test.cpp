#include <gtest/gtest.h>

#include "launcher/planner/planned_boundary.h"

namespace strait::planner {
namespace {

// Eight rows of four tokens, three of them distinct in each row and in no other.
data::PreparedData eight_rows() {
  data::TokenRows rows;
  rows.row_length = 4;
  for (std::int32_t row = 0; row < 8; ++row) {
    rows.input_ids.insert(rows.input_ids.end(), {4 * row, 4 * row + 1, 4 * row + 2, 4 * row});
  }
  rows.loss_mask.assign(rows.input_ids.size(), 1);
  rows.document.assign(rows.input_ids.size(), 0);
  data::PreparedData data;
  data.tokens = std::make_shared<const data::TokenFile>(std::move(rows), "rows");
  return data;
}

plan::Plan three_stages_of_two_replicas() {
  plan::Plan plan;
  plan.recipe.pipeline.stages = 3;
  plan.recipe.pipeline.replicas = 2;
  plan.recipe.train.micro_batch = 1;
  plan.micro_batches = 2;
  plan.steps = 100;
  for (std::uint32_t replica = 0; replica < 2; ++replica) {
    for (std::uint32_t stage = 0; stage < 3; ++stage) {
      plan.processes.emplace_back().name = {stage, replica};
    }
  }
  return plan;
}

models::ModelDescription tied_model() {
  models::ModelDescription model;
  model.tied = true;
  model.tied_trained = true;
  model.vocabulary = 100;
  model.tied_parameters = 100 * 10;
  return model;
}

TEST(PlannedTie, CountsRowsOfAStepAndLinksEnds) {
  plan::Plan plan = three_stages_of_two_replicas();
  const TieBytes bytes = tie_bytes(plan, tied_model(), eight_rows()).value();
  EXPECT_EQ(bytes.gradients, 2 * 3 * 10 * 4);
  EXPECT_EQ(bytes.values, bytes.gradients);
  plan_tie_links(plan, bytes);
  ASSERT_EQ(plan.links.size(), 2U);
  const plan::Plan::Link& second = plan.links[1];
  EXPECT_EQ(second.name, "tie 0.1>2.1");
  EXPECT_EQ(second.use, plan::Plan::Use::tie);
  EXPECT_EQ(second.connects, (net::ProcessName{0, 1}));
  EXPECT_EQ(second.listens, (net::ProcessName{2, 1}));
  EXPECT_EQ(second.forward_bytes, 240);
  EXPECT_EQ(second.backward_bytes, 240);
}

TEST(PlannedTie, ValuesCrossInTheirType) {
  plan::Plan plan = three_stages_of_two_replicas();
  plan.recipe.model.dtype = recipe::Dtype::bfloat16;
  const TieBytes bytes = tie_bytes(plan, tied_model(), eight_rows()).value();
  EXPECT_EQ(bytes.gradients, 240);
  EXPECT_EQ(bytes.values, 120);
}

TEST(PlannedTie, CompressedRowsAreThoseOfCodec) {
  plan::Plan plan = three_stages_of_two_replicas();
  models::ModelDescription model = tied_model();
  model.tied_parameters = 100 * 768;
  const TieBytes raw = tie_bytes(plan, model, eight_rows()).value();
  plan.recipe.codec.forward = "delta";
  plan.recipe.codec.backward = "fixed";
  plan.recipe.codec.backward_bits = 5;
  const TieBytes bytes = tie_bytes(plan, model, eight_rows()).value();
  EXPECT_NEAR(bytes.gradients / raw.gradients, 5.0 / 32, 0.02) << "5 bits and scales";
  EXPECT_NEAR(bytes.values / raw.values, 1.0 / 4, 0.02);
  plan.recipe.codec.first_bits = 16;
  EXPECT_EQ(tie_bytes(plan, model, eight_rows())->values, raw.values / 2);
}

TEST(PlannedTie, IsNoneInOneStageOrUntiedOrFrozen) {
  plan::Plan plan = three_stages_of_two_replicas();
  models::ModelDescription model = tied_model();
  model.tied = false;
  EXPECT_FALSE(tie_bytes(plan, model, eight_rows()));
  models::ModelDescription frozen = tied_model();
  frozen.tied_trained = false;
  EXPECT_FALSE(tie_bytes(plan, frozen, eight_rows()));
  plan.recipe.pipeline.stages = 1;
  EXPECT_FALSE(tie_bytes(plan, tied_model(), eight_rows()));
}

}  // namespace
}  // namespace strait::planner

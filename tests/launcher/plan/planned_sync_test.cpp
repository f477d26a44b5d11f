#include "launcher/plan/planned_sync.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "launcher/plan/sync_offer.h"
#include "launcher/user_error.h"
#include "models/model_config.h"
#include "stages/stage_layout.h"

namespace strait::launcher {
namespace {

models::ModelConfig config(bool tied) {
  return models::parse_config(
      fmt::format(
          R"({{"model_type": "gpt2", "n_layer": 4, "n_embd": 8, "n_head": 2, "vocab_size": 50,
              "tie_word_embeddings": {}}})",
          tied),
      "config.json");
}

Plan plan_of(std::uint32_t stages, std::uint32_t replicas, const std::string& method = "") {
  Plan plan;
  plan.hosts = {{"localhost"}};
  plan.recipe.pipeline.stages = stages;
  plan.recipe.pipeline.replicas = replicas;
  plan.recipe.sync.method = method;
  plan.steps = 100;
  plan.micro_batches = 2;
  plan.step_seconds = 1;
  for (std::uint32_t replica = 0; replica < replicas; ++replica) {
    for (std::uint32_t stage = 0; stage < stages; ++stage) {
      Plan::Process process;
      process.name = {stage, replica};
      const int last = stage + 1 == stages ? 5 : static_cast<int>(stage);
      process.chunks = {{static_cast<int>(stage), last}};
      plan.processes.push_back(process);
    }
  }
  return plan;
}

Plan planned(std::uint32_t stages, std::uint32_t replicas, const std::string& method = "") {
  Plan plan = plan_of(stages, replicas, method);
  plan_sync(plan, models::describe(config(true)));
  return plan;
}

TEST(PlannedSync, EveryTwoReplicasOfAStageAreLinkedAndTheHeadsOnceMore) {
  for (const std::uint32_t replicas : {2U, 3U, 5U}) {
    const Plan plan = planned(3, replicas);
    const auto pairs = replicas * (replicas - 1) / 2;
    std::set<std::string> names;
    std::size_t votes = 0;
    for (const Plan::Link& link : plan.links) {
      EXPECT_EQ(link.connects.stage, link.listens.stage);
      EXPECT_LT(link.connects.replica, link.listens.replica);
      EXPECT_GT(link.forward_bytes, 0) << link.name;
      EXPECT_EQ(link.forward_bytes, link.backward_bytes);
      names.insert(link.name);
      if (link.use != Plan::Use::vote) continue;
      ++votes;
      EXPECT_EQ(link.connects.stage, 0U);
    }
    EXPECT_EQ(plan.links.size(), 4 * pairs);
    EXPECT_EQ(names.size(), plan.links.size());
    EXPECT_EQ(votes, pairs);
    EXPECT_TRUE(names.contains("replica 1.0~1.1"));
    EXPECT_TRUE(names.contains("vote 0.0~0.1"));
  }
}

TEST(PlannedSync, OneReplicaHasNothingToPlan) {
  const Plan plan = planned(2, 1);
  EXPECT_EQ(plan.sync_method, "");
  EXPECT_TRUE(plan.links.empty());
  EXPECT_TRUE(plan.sync_offers.empty());
}

TEST(PlannedSync, WhatAMethodKeepsIsInTheStateOfAProcess) {
  const Plan exact = planned(2, 2, "allreduce");
  const Plan cocktail = planned(2, 2, "cocktail");
  const models::ModelDescription model = models::describe(config(true));
  for (std::size_t i = 0; i < exact.processes.size(); ++i) {
    const std::int64_t size = stages::stage_layout(model, exact.processes[i].chunks).size();
    EXPECT_EQ(exact.processes[i].state_bytes, 0);
    EXPECT_EQ(cocktail.processes[i].state_bytes,
              2 * 4 * size);  // reference and residual; too short for momentum
  }
}

TEST(PlannedSync, SettingsOfAMethodThatIsNotAskedForAreItsAuthors) {
  Recipe recipe;
  recipe.pipeline.replicas = 2;
  recipe.sync.method = "cocktail";
  recipe.sync.random = 0.5;
  recipe.sync.bits = 8;
  recipe.seed = 9;
  EXPECT_EQ(sync_settings(recipe, "cocktail", 10).random, 0.5);
  EXPECT_EQ(sync_settings(recipe, "streaming_diloco", 10).bits, 4);
  EXPECT_EQ(sync_settings(recipe, "noloco", 10).outer_momentum, std::nullopt);
  recipe.sync.outer_momentum = 0.3;
  EXPECT_EQ(sync_settings(recipe, "cocktail", 10).outer_momentum, 0.3);
  EXPECT_EQ(sync_settings(recipe, "onebit_adam", 10).steps, 10);
  EXPECT_EQ(sync_settings(recipe, "onebit_adam", 10).seed, 9U);
}

TEST(PlannedSync, EveryMethodIsOfferedWithWhatItCosts) {
  const Plan plan = planned(2, 4);
  const auto names = sync::method_names();
  ASSERT_EQ(plan.sync_offers.size(), names.size());
  for (std::size_t i = 0; i < names.size(); ++i) {
    const Plan::SyncOffer& offer = plan.sync_offers[i];
    EXPECT_EQ(offer.method, names[i]);
    EXPECT_GT(offer.step_bytes, 0);
    EXPECT_GE(offer.round_bytes, offer.step_bytes);
    EXPECT_GE(offer.step_seconds, plan.step_seconds);
  }
}

std::string chosen(double link_megabits) {
  Plan plan = plan_of(2, 4, "auto");
  plan.recipe.hosts.link_megabits = link_megabits;
  plan_sync(plan, models::describe(config(true)));
  return plan.sync_method;
}

TEST(PlannedSync, AutoTakesExactMeansWhereTheyCostNoTimeAndFewBytesWhereLinksAreSlow) {
  EXPECT_EQ(chosen(1e6), "allreduce");
  // 6,250 bytes in the step of a second, for a stage of some 9,000 values.
  EXPECT_EQ(chosen(0.05), "cocktail");
}

TEST(PlannedSync, WhereNothingHidesAutoLosesTheLeastTime) {
  const auto chosen_of = [](double allreduce, double cocktail, double diloco) {
    return choose_sync({{"allreduce", 0, 0, 0, 0, 0, allreduce},
                        {"cocktail", 0, 0, 0, 0, 0, cocktail},
                        {"diloco", 0, 0, 0, 0, 0, diloco}});
  };
  EXPECT_EQ(chosen_of(9, 5, 4), "diloco");
  EXPECT_EQ(chosen_of(9, 1.04, 1), "cocktail");
  EXPECT_EQ(chosen_of(1.04, 1, 1), "allreduce");
}

TEST(PlannedSync, SettingsThatDoNotGoTogetherAreTheRecipesMistake) {
  Plan plan = plan_of(1, 2, "streaming_diloco");
  plan.recipe.sync.every = 4;
  plan.recipe.sync.late = 3;
  try {
    plan_sync(plan, models::describe(config(true)));
    FAIL();
  } catch (const UserError& error) {
    EXPECT_EQ(error.code(), ExitCode::bad_input);
    EXPECT_THAT(error.what(), testing::StartsWith("[sync]: "));
  }
}

TEST(PlannedSync, TheEvaluationIsDealtOutWholeAndOnce) {
  for (const std::int64_t micro_batches : {0, 1, 2, 5, 9}) {
    for (const std::uint32_t replicas : {1U, 2U, 3U, 4U}) {
      Plan plan = plan_of(1, replicas);
      plan.eval_micro_batches = micro_batches;
      std::size_t all = 0;
      for (const Plan::Process& process : plan.processes) {
        all += plan.evaluation_actions(process.name).size();
      }
      EXPECT_EQ(all, static_cast<std::size_t>(micro_batches));
    }
  }
}

}  // namespace
}  // namespace strait::launcher

#include "launcher/planner/fit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "models/model_description.h"
#include "tests/launcher/user_error.h"

namespace strait::planner {
namespace {

using testing::HasSubstr;

FitModel size_named(const std::string& name) {
  const std::vector<FitModel> sizes = fit_sizes();
  return *std::ranges::find(sizes, name, &FitModel::name);
}

// Those of this training and GPU. Nullptr: that number of hosts does not fit.
const FitPlan* plan_of(const std::vector<FitRow>& rows, const std::string& training,
                       std::int64_t gibibytes, int hosts) {
  for (const FitRow& row : rows) {
    if (row.training != training || row.gibibytes != gibibytes) continue;
    const auto found = std::ranges::find(row.plans, hosts, &FitPlan::hosts);
    return found == row.plans.end() ? nullptr : &*found;
  }
  return nullptr;
}

TEST(Fit, SizesHaveTheParametersOfTheirNames) {
  const std::vector<std::pair<std::string, double>> billions{
      {"1B", 1.24}, {"3B", 3.21}, {"7B", 7.24}, {"14B", 14.8}, {"32B", 32.8}};
  const std::vector<FitModel> sizes = fit_sizes();
  ASSERT_EQ(sizes.size(), billions.size());
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    EXPECT_EQ(sizes[i].name, billions[i].first);
    const auto model = models::describe(models::parse_config(sizes[i].config, "config.json"));
    EXPECT_NEAR(static_cast<double>(model.parameters()) / 1e9 / billions[i].second, 1, 0.01)
        << sizes[i].name;
  }
}

// 18 bytes a parameter need 130 GB, which four such cards do not have.
TEST(Fit, TrainsTheWhole7BOverFourCardsOf24Gigabytes) {
  const std::vector<FitRow> rows = fit_rows({size_named("7B")}, {100});
  EXPECT_EQ(plan_of(rows, "full", 24, 1), nullptr);
  const FitPlan* const four = plan_of(rows, "full", 24, 4);
  ASSERT_NE(four, nullptr);
  EXPECT_TRUE(four->moments != recipe::Moments::float32 ||
              four->offload == recipe::Offload::optimizer);
  EXPECT_EQ(four->stages * four->replicas, 4);
  const FitPlan* const alone = plan_of(rows, "full", 48, 1);
  ASSERT_NE(alone, nullptr);
  EXPECT_EQ(alone->offload, recipe::Offload::optimizer);
  EXPECT_NE(plan_of(rows, "QLoRA", 16, 1), nullptr);
}

TEST(Fit, SecondHostIsFasterFromItsLineOn) {
  for (const FitRow& row : fit_rows({size_named("1B")}, {10, 4000})) {
    ASSERT_TRUE(row.second_host) << row.training << row.gibibytes;
    const auto two = [&](double megabits) {
      return std::ranges::find_if(row.plans, [&](const FitPlan& plan) {
        return plan.hosts == 2 && plan.megabits == megabits;
      });
    };
    ASSERT_EQ(row.plans.front().hosts, 1);
    const double alone = row.plans.front().tokens_per_second;
    EXPECT_GT(*row.second_host, 10);
    EXPECT_LT(two(10)->tokens_per_second, alone);
    EXPECT_GT(two(4000)->tokens_per_second, alone);
  }
}

TEST(Fit, FaultOfARecipeIsNoLackOfMemory) {
  FitModel model = size_named("1B");
  model.recipe.data.row = 65536;  // its positions end before
  EXPECT_THAT(base::user_error(base::ExitCode::bad_input, [&] { fit_rows({model}, {100}); }),
              HasSubstr("data.row is 65536"));
}

TEST(Fit, PlansTheAdapterThatARecipeNames) {
  FitModel model = size_named("1B");
  auto config = nlohmann::json::parse(model.config);
  config["num_hidden_layers"] = 2;
  model.config = config.dump();
  model.recipe.model.lora.reset();
  model.recipe.model.adapter = "nowhere";
  EXPECT_THAT(base::user_error(base::ExitCode::bad_input, [&] { fit_rows({model}, {100}); }),
              HasSubstr("model.adapter = \"nowhere\""));
}

}  // namespace
}  // namespace strait::planner

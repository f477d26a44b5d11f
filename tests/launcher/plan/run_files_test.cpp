#include "launcher/plan/run_files.h"

#include <gtest/gtest.h>

#include "tests/scratch_directory.h"

namespace strait::plan {
namespace {

namespace fs = std::filesystem;

TEST(RunFiles, FindTheirOwnBaseWhereTheRunWasMovedTo) {
  const ScratchDirectory folder;
  const fs::path run = folder / "moved";
  const fs::path own = run / kBaseFolder / "step-9";
  recipe::Recipe recipe;
  recipe.model.weights = recipe::Weights::run;
  const auto found = [&](const std::string& weights) {
    recipe.model.weights_run = weights;
    find_own_base(run, recipe);
    return recipe.model.weights_run;
  };
  EXPECT_EQ(found("/runs/b/base/step-9"), "/runs/b/base/step-9");
  fs::create_directories(own);
  ScratchDirectory::write(own / store::kManifestName, "{}");
  EXPECT_EQ(found("/runs/b/base/step-9"), own.string());
  EXPECT_EQ(found("/runs/b/base/step-8"), "/runs/b/base/step-8");
  EXPECT_EQ(found("/runs/a/checkpoints/step-9"), "/runs/a/checkpoints/step-9");
}

TEST(RunFiles, KnowWhereABaseWasThatIsLost) {
  Plan plan;
  plan.recipe.model.weights = recipe::Weights::run;
  plan.recipe.model.weights_run = "/runs/b/base/step-7";
  EXPECT_FALSE(own_base("/runs/moved", plan).has_value());  // all weights are trained
  plan.recipe.model.lora.emplace();
  EXPECT_EQ(own_base("/runs/moved", plan), "/runs/moved/base/step-7");
  plan.recipe.model.weights_run = "/runs/a/checkpoints/step-7";
  EXPECT_FALSE(own_base("/runs/moved", plan).has_value());
}

}  // namespace
}  // namespace strait::plan

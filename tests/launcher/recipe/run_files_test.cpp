#include "launcher/recipe/run_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/launcher/user_error.h"
#include "tests/scratch_directory.h"

namespace strait::plan {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

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

// And no class of the JSON library.
TEST(RunFiles, NameTheFileThatIsNoPlan) {
  const std::string id(32, 'a');
  const auto fault = [](const std::string& text, base::ExitCode code) {
    return base::user_error(
        code, [&] { parse_run_file(text, "runs/x/plan.json", [](const auto& /*plugins*/) {}); });
  };
  for (const std::string& text : {std::string("{}"), "{\"run\": \"" + id + "\", \"plan\": {}}",
                                  std::string("{\"run\": 3, \"plan\": {}}")}) {
    const std::string said = fault(text, base::ExitCode::mismatch);
    EXPECT_THAT(said, StartsWith("runs/x/plan.json"));
    EXPECT_THAT(said, Not(HasSubstr("json.exception")));
  }
  EXPECT_THAT(fault("{,", base::ExitCode::corrupt),
              StartsWith("runs/x/plan.json is damaged: parse error at line 1, column 2: "));
}

}  // namespace
}  // namespace strait::plan

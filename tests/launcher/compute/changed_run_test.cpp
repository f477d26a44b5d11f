#include "launcher/compute/changed_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launcher/base/errors.h"
#include "launcher/compute/prepared_run.h"
#include "launcher/recipe/recipe_io.h"
#include "tests/scratch_directory.h"

namespace strait::compute {
namespace {

using testing::HasSubstr;

recipe::Recipe recipe_of_run() {
  return recipe::parse_recipe(
      "model.path = \"model\"\ndata.train = \"train.jsonl\"\ntrain.steps = 4\n", "run.toml");
}

// What the user writes into recipe.toml would otherwise change the run with some later --set.
TEST(ChangedRun, StartsFromTheRecipeOfThePlanAndReportsAnEditedFile) {
  const ScratchDirectory run;
  const recipe::Recipe recipe = recipe_of_run();
  EXPECT_EQ(edited_recipe_note(run.path(), recipe), "");
  std::string text = recipe::recipe_to_toml(recipe);
  ScratchDirectory::write(run / "recipe.toml", "# mine\n" + text);
  EXPECT_EQ(edited_recipe_note(run.path(), recipe), "");
  text.replace(text.find("steps = 4"), 9, "steps = 9");
  ScratchDirectory::write(run / "recipe.toml", text);
  EXPECT_THAT(edited_recipe_note(run.path(), recipe), HasSubstr("(train.steps); resume ignores"));
  const recipe::Recipe changed = overridden(recipe, run / "recipe.toml", {"train.batch=8"});
  EXPECT_EQ(changed.train.steps, 4);
  EXPECT_EQ(changed.train.batch, 8);
  EXPECT_EQ(overridden(recipe, run / "recipe.toml", {"train.epochs=2"}).train.steps, std::nullopt);
  EXPECT_EQ(overridden(recipe, run / "recipe.toml", {}), recipe);
  EXPECT_THROW(overridden(recipe, run / "recipe.toml", {"train.batch=x"}), base::UserError);
  ScratchDirectory::write(run / "recipe.toml", "steps =");
  EXPECT_THAT(edited_recipe_note(run.path(), recipe), HasSubstr("not a recipe now"));
}

TEST(ChangedRun, SaysWhatARunThatExistsAlreadyIgnores) {
  recipe::Recipe recipe = recipe_of_run();
  make_paths_absolute(recipe);
  const auto note = [&](const std::vector<std::string>& overrides, bool by_engine = false) {
    return ignored_recipe_note("runs/x", recipe, overridden(recipe_of_run(), "x.toml", overrides),
                               by_engine);
  };
  EXPECT_EQ(note({}), "");
  EXPECT_THAT(note({"train.steps=9", "train.clip=2"}), HasSubstr("(train.steps, train.clip)"));
  EXPECT_THAT(note({"train.steps=9"}), HasSubstr("strait resume runs/x --set KEY=VALUE"));
  // The plan has chosen these.
  recipe.pipeline.stages = 2;
  recipe.train.micro_batch = 4;
  EXPECT_EQ(note({"pipeline.stages=\"auto\""}), "");
  // An engine names its hosts at each start.
  const std::vector<std::string> hosts = {"hosts.backend=\"join\"", "hosts.list=[\"a\", \"b\"]"};
  EXPECT_THAT(note(hosts), HasSubstr("hosts.list"));
  std::vector<std::string> engine = hosts;
  engine.emplace_back("pipeline.stages=2");
  EXPECT_EQ(note(engine, true), "");
}

}  // namespace
}  // namespace strait::compute

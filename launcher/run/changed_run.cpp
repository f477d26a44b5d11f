#include "launcher/run/changed_run.h"

#include <fmt/format.h>

#include <utility>

#include "launcher/plan/plan_maker.h"
#include "launcher/recipe/recipe_keys.h"
#include "launcher/recipe/recipe_reader.h"
#include "launcher/user_error.h"

namespace strait::launcher {
namespace {

void check_lasting_part(const Recipe& before, const Recipe& after) {
  const Recipe was = lasting_part(before);
  const Recipe is = lasting_part(after);
  if (was == is) return;
  for (const RecipeKey& key : recipe_keys()) {
    if (key.get(was) == key.get(is)) continue;
    throw UserError(ExitCode::bad_input,
                    fmt::format("--set {} would change what this run learns; resume can change "
                                "keys of [pipeline], [codec], [checkpoint] and [hosts] only; for "
                                "others start a run of another name",
                                key.name));
  }
}

}  // namespace

Recipe lasting_part(Recipe recipe) {
  recipe.pipeline = {};
  recipe.codec = {};
  recipe.checkpoint = {};
  recipe.hosts = {};
  return recipe;
}

RunFile changed_run(const RunDirectory& directory, const RunFile& run,
                    const std::vector<std::string>& overrides) {
  const Recipe recipe = read_recipe(directory.recipe(), overrides);
  check_lasting_part(run.plan.recipe, recipe);
  RunFile changed{run.run, make_plan(recipe).plan};
  changed.plan.train.file = run.plan.train.file;
  if (changed.plan.eval && run.plan.eval) changed.plan.eval->file = run.plan.eval->file;
  return changed;
}

}  // namespace strait::launcher

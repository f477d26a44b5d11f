#include "launcher/run/changed_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "launcher/plan/plan_maker.h"
#include "launcher/plugin/plugin_file.h"
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
    throw UserError(
        ExitCode::bad_input,
        fmt::format("--set {} would change what this run learns; resume can change "
                    "plugins and keys of [pipeline], [codec], [sync], [checkpoint] and [hosts] "
                    "only; for others start a run of another name",
                    key.name));
  }
}

// Then `auto` chooses anew.
bool asks_of_sync(const std::vector<std::string>& overrides) {
  return std::ranges::any_of(overrides,
                             [](const std::string& one) { return one.starts_with("sync."); });
}

void check_data_is_as_it_was(const Plan::Data& before, const Plan::Data& now,
                             const std::string& source) {
  if (before.hash == now.hash) return;
  throw UserError(ExitCode::mismatch,
                  fmt::format("{} has changed since the run began (its rows have the hash {}, and "
                              "had {}); put it back to resume with --set, or resume without",
                              source, now.hash, before.hash));
}

}  // namespace

Recipe lasting_part(Recipe recipe) {
  recipe.plugins = {};
  recipe.pipeline = {};
  recipe.codec = {};
  recipe.sync = {};
  recipe.checkpoint = {};
  recipe.hosts = {};
  return recipe;
}

RunFile changed_run(const RunDirectory& directory, const RunFile& run,
                    const std::vector<std::string>& overrides) {
  const Recipe recipe = read_recipe(directory.recipe(), overrides, load_plugins);
  check_lasting_part(run.plan.recipe, recipe);
  RunFile changed{run.run, make_plan(recipe, asks_of_sync(overrides) ? nullptr : &run.plan).plan};
  check_data_is_as_it_was(run.plan.train, changed.plan.train, recipe.data.train);
  changed.plan.train = run.plan.train;
  changed.plan.eval = run.plan.eval;
  return changed;
}

}  // namespace strait::launcher

#include "launcher/app/changed_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "launcher/base/errors.h"
#include "launcher/planner/plan_maker.h"
#include "launcher/plugin/plugin_file.h"
#include "launcher/recipe/recipe_io.h"
#include "launcher/recipe/recipe_keys.h"

namespace strait::app {
namespace {

void check_lasting_part(const recipe::Recipe& before, const recipe::Recipe& after) {
  const recipe::Recipe was = plan::invariant_part(before);
  const recipe::Recipe is = plan::invariant_part(after);
  if (was == is) return;
  for (const recipe::RecipeKey& key : recipe::recipe_keys()) {
    if (key.get(was) == key.get(is)) continue;
    throw base::UserError(
        base::ExitCode::bad_input,
        fmt::format("--set {} would change what this run learns; resume can change "
                    "plugins and keys of [pipeline], [codec], [sync], [checkpoint] and [hosts] "
                    "only; for others start a run of another name",
                    key.name));
  }
}

// Whether `auto` has to choose the sync method again.
bool asks_of_sync(const std::vector<std::string>& overrides) {
  return std::ranges::any_of(overrides,
                             [](const std::string& one) { return one.starts_with("sync."); });
}

void check_data_is_as_it_was(const plan::Plan::Data& before, const plan::Plan::Data& now,
                             const std::string& source) {
  if (before.hash == now.hash) return;
  throw base::UserError(
      base::ExitCode::mismatch,
      fmt::format("{} has changed since the run began (its rows have the hash {}, and "
                  "had {}); put it back to resume with --set, or resume without",
                  source, now.hash, before.hash));
}

}  // namespace

plan::RunFile changed_run(const control::RunDirectory& directory, const plan::RunFile& run,
                          const std::vector<std::string>& overrides) {
  const recipe::Recipe recipe =
      recipe::read_recipe(directory.recipe(), overrides, plugin::load_plugins);
  check_lasting_part(run.plan.recipe, recipe);
  plan::RunFile changed{
      run.run, planner::make_plan(recipe, asks_of_sync(overrides) ? nullptr : &run.plan).plan};
  check_data_is_as_it_was(run.plan.train, changed.plan.train, recipe.data.train);
  changed.plan.train = run.plan.train;
  changed.plan.eval = run.plan.eval;
  return changed;
}

}  // namespace strait::app

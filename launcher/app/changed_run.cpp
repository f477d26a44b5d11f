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

void check_invariant_part(const recipe::Recipe& before, const recipe::Recipe& after) {
  const recipe::Recipe former = plan::invariant_part(before);
  const recipe::Recipe changed = plan::invariant_part(after);
  if (former == changed) return;
  for (const recipe::RecipeKey& key : recipe::recipe_keys()) {
    if (key.get(former) == key.get(changed)) continue;
    throw base::UserError(
        base::ExitCode::bad_input,
        fmt::format("--set {} would change what this run learns; resume can change "
                    "plugins and keys of [pipeline], [codec], [sync], [checkpoint] and [hosts] "
                    "only; for others start a run of another name",
                    key.name));
  }
}

// Then `auto` chooses the sync method again.
bool changes_sync(const std::vector<std::string>& overrides) {
  return std::ranges::any_of(overrides,
                             [](const std::string& one) { return one.starts_with("sync."); });
}

void check_data_is_unchanged(const plan::Plan::Data& before, const plan::Plan::Data& now,
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
  check_invariant_part(run.plan.recipe, recipe);
  plan::RunFile changed{
      run.run, planner::make_plan(recipe, changes_sync(overrides) ? nullptr : &run.plan).plan};
  check_data_is_unchanged(run.plan.train, changed.plan.train, recipe::paths_of(recipe.data.train));
  changed.plan.train = run.plan.train;
  changed.plan.eval = run.plan.eval;
  return changed;
}

}  // namespace strait::app

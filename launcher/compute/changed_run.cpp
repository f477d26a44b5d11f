#include "launcher/compute/changed_run.h"

#include "launcher/base/text.h"
#include "launcher/cli/changeable_keys.h"
#include "launcher/compute/loaded_run.h"
#include "launcher/compute/prepared_run.h"
#include "launcher/planner/plan_maker.h"
#include "launcher/planner/planned_data.h"
#include "launcher/plugin/plugin_file.h"
#include "launcher/recipe/recipe_keys.h"
#include "launcher/worker/stage_settings.h"
#include "stages/adamw.h"

namespace strait::compute {
namespace {

// Then `auto` chooses the sync method again.
bool changes_sync(const std::vector<std::string>& overrides) {
  return std::ranges::any_of(overrides,
                             [](const std::string& one) { return one.starts_with("sync."); });
}

// Keeps the choices of `before`: the plan of `run`, which may leave some open.
plan::RunFile planned_again(const plan::RunFile& run, const recipe::Recipe& recipe,
                            const plan::Plan& before, const recipe::LinkTable* speeds) {
  plan::RunFile changed{run.run, planner::make_plan(recipe, &before, speeds).plan};
  constexpr std::string_view kRemedy = "start a run of another name";
  plan::check_same_rows(run.plan.train, changed.plan.train.hash, "began", kRemedy);
  if (run.plan.eval) {
    plan::check_same_rows(*run.plan.eval, changed.plan.eval->hash, "began", kRemedy);
  }
  const std::string hash = plan::recipe_hash(run);
  if (plan::recipe_hash(changed) != hash) changed.recipe_hash = hash;
  return changed;
}

// Of the first step that is trained anew, where the schedule has changed.
std::string learning_rate_note(const plan::Plan& before, const plan::Plan& now, store::Step step) {
  const auto was = worker::learning_rate_options(before);
  const auto is = worker::learning_rate_options(now);
  const std::int64_t next = number(step);
  if (stages::learning_rate(was, next) == stages::learning_rate(is, next) &&
      was.steps == is.steps) {
    return "";
  }
  const std::string last =
      next == 0 ? std::string()
                : fmt::format(" (step {} had {:.3g})", next, stages::learning_rate(was, next - 1));
  return fmt::format(
      "the learning rate of step {} is {:.3g}{}: \"{}\" decay over all {} steps, as if the run had "
      "begun so",
      next + 1, stages::learning_rate(is, next), last, recipe::name_of(now.recipe.train.decay),
      now.steps);
}

std::vector<std::string> change_notes(const plan::Plan& before, const plan::Plan& now,
                                      const std::vector<const recipe::RecipeKey*>& keys,
                                      store::Step step) {
  std::vector<std::string> notes = cli::change_lines(before.recipe, now.recipe, keys);
  if (const std::string rate = learning_rate_note(before, now, step); !rate.empty()) {
    notes.push_back(rate);
  }
  const std::string warmup = planner::long_warmup_note(now);
  if (!warmup.empty() && warmup != planner::long_warmup_note(before)) notes.push_back(warmup);
  if (before.recipe.train.batch != now.recipe.train.batch) {
    notes.push_back(
        fmt::format("step {} takes the rows that it has in a run of {} rows a step from the start: "
                    "others are skipped or repeated once",
                    number(step) + 1, now.recipe.train.batch));
  }
  // What "auto" chose is no key, so none of the lines above names it.
  if (before.slices != now.slices && !now.recipe.pipeline.slices) {
    notes.push_back(
        fmt::format("micro-batches cross in {} instead of {}: later steps have other bits, and "
                    "caches begin anew",
                    base::counted(now.slices, "slice"), before.slices));
  }
  return notes;
}

// The keys that a plan fills in, or whose values it replaces by others of the same meaning.
std::vector<std::string_view> planned_keys(const recipe::Recipe& given) {
  std::vector<std::string_view> begins = {"model.weights"};
  const recipe::Recipe::Pipeline& pipeline = given.pipeline;
  if (pipeline.choose_stages || pipeline.choose_replicas) begins.emplace_back("pipeline.");
  if (given.codec.forward == "auto" || given.codec.backward == "auto")
    begins.emplace_back("codec.");
  if (!given.model.adapter.empty()) begins.emplace_back("model.lora");
  return begins;
}

bool leaves_open(const recipe::RecipeValue& value) { return value.is_null() || value == "auto"; }

}  // namespace

recipe::Recipe overridden(const recipe::Recipe& recipe, const std::filesystem::path& file,
                          const std::vector<std::string>& overrides) {
  return recipe::parse_recipe(recipe::recipe_to_toml(recipe), file.string(), overrides,
                              plugin::load_plugins);
}

std::string edited_recipe_note(const std::filesystem::path& run, const recipe::Recipe& recipe) {
  const std::filesystem::path file = run / base::kRecipeFile;
  std::error_code error;
  if (!std::filesystem::exists(file, error)) return "";  // nothing reads it
  std::string what;
  try {
    // The plugins of the run are loaded; those that an edited file names are not.
    recipe::Recipe written = recipe::read_recipe(file);
    plan::find_own_base(run, written);
    const auto changed = cli::changed_keys(recipe, written);
    if (changed.empty()) return "";
    std::vector<std::string_view> names;
    names.reserve(changed.size());
    for (const recipe::RecipeKey* key : changed) names.push_back(key->name);
    what = fmt::format("{}", fmt::join(names, ", "));
  } catch (const base::UserError&) {
    what = "it is not a recipe now";
  }
  return fmt::format(
      "{} was edited since it was written ({}); resume ignores it: use --set KEY=VALUE",
      file.string(), what);
}

std::string ignored_recipe_note(const std::filesystem::path& run, const recipe::Recipe& recipe,
                                recipe::Recipe given, bool by_engine) {
  make_paths_absolute(given);
  std::vector<std::string_view> planned = planned_keys(given);
  if (by_engine) planned.emplace_back("hosts.");
  std::vector<std::string_view> names;
  for (const recipe::RecipeKey* key : cli::changed_keys(recipe, given)) {
    const std::string_view name = key->name;
    const bool is_planned = std::ranges::any_of(
        planned, [name](std::string_view begin) { return name.starts_with(begin); });
    if (!is_planned && !leaves_open(key->get(given))) names.push_back(name);
  }
  if (names.empty()) return "";
  return fmt::format(
      "{} goes on by its own recipe; the one that is given says something else ({}), which is "
      "ignored: use {} --set KEY=VALUE",
      run.string(), fmt::join(names, ", "), base::strait_command("resume", run));
}

ChangedRun changed_run(const run::RunDirectory& directory, const plan::RunFile& run,
                       store::Step step, const std::vector<std::string>& overrides) {
  recipe::Recipe recipe = overridden(run.plan.recipe, directory.recipe(), overrides);
  make_paths_absolute(recipe);
  const auto keys = cli::changed_keys(run.plan.recipe, recipe);
  cli::check_may_change(keys);
  plan::Plan before = run.plan;
  if (changes_sync(overrides)) before.sync_method.clear();
  plan::RunFile changed = planned_again(run, recipe, before, nullptr);
  if (changed.plan.steps < number(step)) {
    throw base::UserError(base::ExitCode::bad_input,
                          "the run has made {}, and would have {}: set train.steps to more than {}",
                          base::counted(number(step), "step"), changed.plan.steps, number(step));
  }
  std::vector<std::string> notes = change_notes(run.plan, changed.plan, keys, step);
  return {std::move(changed), std::move(notes)};
}

plan::RunFile changed_run(const plan::RunFile& run, const recipe::Recipe& recipe,
                          const recipe::LinkTable* speeds) {
  cli::check_may_change(cli::changed_keys(run.plan.recipe, recipe));
  return planned_again(run, recipe, run.plan, speeds);
}

}  // namespace strait::compute

#include "launcher/cli/changed_run.h"

#include "launcher/base/errors.h"
#include "launcher/base/text.h"
#include "launcher/cli/prepared_run.h"
#include "launcher/planner/plan_maker.h"
#include "launcher/planner/planned_data.h"
#include "launcher/plugin/plugin_file.h"
#include "launcher/recipe/recipe_keys.h"
#include "launcher/worker/stage_settings.h"
#include "stages/adamw.h"

namespace strait::cli {
namespace {

// What a change of a key gives up.
enum class Effect : std::uint8_t { none, later_steps, sums, wire, replicas };

struct Changeable {
  std::string_view key;  // or a section: all of its keys
  Effect effect;
};

// The first entry that fits counts.
constexpr std::array kChangeable = {
    Changeable{"train.eval_every", Effect::none},
    // Before "train", which would match as well.
    Changeable{"train.stop_when", Effect::none},
    Changeable{"train.micro_batch", Effect::sums},
    Changeable{"train", Effect::later_steps},
    Changeable{"pipeline.replicas", Effect::replicas},
    Changeable{"pipeline.threads", Effect::sums},
    Changeable{"pipeline", Effect::none},
    Changeable{"model.path", Effect::none},  // a moved directory: check_same_model() compares
    Changeable{"model.recompute", Effect::none},
    Changeable{"codec", Effect::wire},
    Changeable{"sync", Effect::replicas},
    Changeable{"checkpoint", Effect::none},
    Changeable{"hosts", Effect::none},
    Changeable{"on", Effect::none},
    Changeable{"plugins", Effect::none},
};

std::string_view given_up(Effect effect) {
  switch (effect) {
    case Effect::none:
      return "no bits, with raw float32 links, a number as pipeline.threads and machines of one "
             "type";
    case Effect::later_steps:
      return "the bits of all later steps: they are those of neither setting from the start";
    case Effect::sums:
      return "the last bits of all later steps: gradients are summed in another order";
    case Effect::wire:
      return "the bits of all later steps: other values cross the boundaries";
    case Effect::replicas:
      break;
  }
  return "the bits of all later steps: replicas agree on other weights, and may start from the "
         "agreed model instead of their own state";
}

const Changeable* find_changeable(std::string_view key) {
  if (key == "train.optimizer") return nullptr;  // its checkpoints have another state
  const auto found = std::ranges::find_if(kChangeable, [key](const Changeable& one) {
    return key == one.key || (key.starts_with(one.key) && key[one.key.size()] == '.');
  });
  return found == kChangeable.end() ? nullptr : &*found;
}

// "train.steps, train.epochs, [codec]": what has one of these effects.
std::string keys_with(std::span<const Effect> effects) {
  std::vector<std::string> keys;
  for (const recipe::RecipeKey& key : recipe::recipe_keys()) {
    const Changeable* const one = find_changeable(key.name);
    if (one == nullptr || std::ranges::find(effects, one->effect) == effects.end()) continue;
    const bool whole = one->key != "train" && recipe::is_recipe_section(one->key);
    std::string name = whole ? fmt::format("[{}]", one->key) : key.name;
    if (std::ranges::find(keys, name) == keys.end()) keys.push_back(std::move(name));
  }
  return fmt::format("{}", fmt::join(keys, ", "));
}

constexpr std::array kEffects = {Effect::later_steps, Effect::sums, Effect::wire, Effect::replicas,
                                 Effect::none};

std::vector<const recipe::RecipeKey*> changed_keys(const recipe::Recipe& before,
                                                   const recipe::Recipe& after) {
  std::vector<const recipe::RecipeKey*> changed;
  for (const recipe::RecipeKey& key : recipe::recipe_keys()) {
    if (key.get(before) != key.get(after)) changed.push_back(&key);
  }
  return changed;
}

void check_may_change(const std::vector<const recipe::RecipeKey*>& keys) {
  for (const recipe::RecipeKey* key : keys) {
    if (find_changeable(key->name) != nullptr) continue;
    throw base::UserError(base::ExitCode::bad_input,
                          "--set {} would change what this run is; resume can change {} only; for "
                          "others start a run of another name",
                          key->name, keys_with(kEffects));
  }
}

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

std::string shown(const recipe::RecipeValue& value) {
  return value.is_null() ? "unset" : value.dump();
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
  const recipe::Recipe shown_before = recipe::without_secrets(before.recipe);
  const recipe::Recipe shown_now = recipe::without_secrets(now.recipe);
  std::vector<std::string> notes;
  for (const Effect effect : kEffects) {
    std::vector<std::string> changes;
    for (const recipe::RecipeKey* key : keys) {
      if (find_changeable(key->name)->effect != effect) continue;
      const std::string was = shown(key->get(shown_before));
      const std::string is = shown(key->get(shown_now));
      changes.push_back(was == is ? fmt::format("{} (its variables)", key->name)
                                  : fmt::format("{} {} instead of {}", key->name, is, was));
    }
    if (changes.empty()) continue;
    notes.push_back(
        fmt::format("changed: {}; this gives up {}", fmt::join(changes, ", "), given_up(effect)));
  }
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
  return notes;
}

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
    const auto changed = changed_keys(recipe, written);
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

std::string changeable_keys() {
  std::string text = "--set may change, and gives up:";
  for (const Effect effect : kEffects) {
    text += fmt::format("\n  {}\n    {}", keys_with({&effect, 1}), given_up(effect));
  }
  return text;
}

ChangedRun changed_run(const run::RunDirectory& directory, const plan::RunFile& run,
                       store::Step step, const std::vector<std::string>& overrides) {
  recipe::Recipe recipe = overridden(run.plan.recipe, directory.recipe(), overrides);
  make_paths_absolute(recipe);
  const auto keys = changed_keys(run.plan.recipe, recipe);
  check_may_change(keys);
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
  check_may_change(changed_keys(run.plan.recipe, recipe));
  return planned_again(run, recipe, run.plan, speeds);
}

}  // namespace strait::cli

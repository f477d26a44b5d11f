#pragma once

#include "framework/store/sample.h"
#include "launcher/recipe/run_files.h"
#include "launcher/run/run_directory.h"

// `resume --set`: the same run with other settings.
namespace strait::compute {

// The recipe of a run's plan with these overrides. `file`: its recipe.toml, which has the same text
// and is named in errors; it is not read, because the user may have edited it.
recipe::Recipe overridden(const recipe::Recipe& recipe, const std::filesystem::path& file,
                          const std::vector<std::string>& overrides);

// Where recipe.toml of the run says something else than the recipe of its plan, by which the run
// goes on: says so. Else empty.
std::string edited_recipe_note(const std::filesystem::path& run, const recipe::Recipe& recipe);

// Where `given`, the recipe of a `run --resume-if-exists`, says something else than that of the run
// that goes on: says so. Else empty. What `given` leaves open is no difference, nor are hosts that
// an engine has named (`by_engine`).
std::string ignored_recipe_note(const std::filesystem::path& run, const recipe::Recipe& recipe,
                                recipe::Recipe given, bool by_engine);

struct ChangedRun {
  plan::RunFile run;
  std::vector<std::string> notes;  // for the user: what changes, and which bits that gives up
};

// The run with these overrides ("train.steps=200"), as it goes on after `step`: same data and name,
// another plan. The method that `sync.method = "auto"` chose stays unless an override is of [sync].
// Writes nothing. UserError: an override is invalid, or changes what must stay.
ChangedRun changed_run(const run::RunDirectory& directory, const plan::RunFile& run,
                       store::Step step, const std::vector<std::string>& overrides);

// The run with this recipe, without notes. The chosen method stays. `speeds`: in place of
// those in hosts.links, if not null.
plan::RunFile changed_run(const plan::RunFile& run, const recipe::Recipe& recipe,
                          const recipe::LinkTable* speeds);

}  // namespace strait::compute

#pragma once

#include <filesystem>
#include <string>

#include "framework/net/run_id.h"
#include "framework/store/manifest.h"
#include "launcher/plan/plan.h"
#include "launcher/recipe/recipe_reader.h"

namespace strait::plan {

// What plan.json holds: the plan and the run's own name.
struct RunFile {
  net::RunId run;
  Plan plan;
};

void write_run_file(const std::filesystem::path& file, const RunFile& run);
// `load` is called with the run's plugins. UserError: there is none, or it is not a plan of this build.
RunFile read_run_file(const std::filesystem::path& file, const recipe::LoadPlugins& load);

// A recipe without what may change from one start of a run to the next, because it changes how the
// run is carried out and not what is learnt from what: plugins, [pipeline], [codec], [sync],
// [checkpoint], [hosts].
recipe::Recipe lasting_part(recipe::Recipe recipe);

// The manifest of a checkpoint of this run, but for the files and the codec generation.
store::Manifest manifest_for(const RunFile& run, std::uint32_t generation, store::Step step);

// Before going on from `step`: drops the lines of metrics.jsonl that tell of later steps, which
// will be trained, and told of, again.
void forget_newer_steps(const std::filesystem::path& metrics, store::Step step);

}  // namespace strait::plan

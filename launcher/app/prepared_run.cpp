#include "launcher/app/prepared_run.h"

#include <fmt/format.h>

#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "framework/store/atomic_file.h"
#include "launcher/app/base_weights.h"
#include "launcher/app/run_options.h"
#include "launcher/base/errors.h"
#include "launcher/control/stop_signals.h"
#include "launcher/recipe/recipe_io.h"

namespace strait::app {
namespace {

namespace fs = std::filesystem;

// Writes everything that stages and a later resume need, before anything is started.
plan::RunFile write_files(const control::RunDirectory& directory, planner::PlannedRun planned) {
  plan::Plan& plan = planned.plan;
  const std::filesystem::path rows = directory.path() / plan::kRowsFolder;
  plan.train.file = planner::place_data(planned.train, rows / plan::kTrainRows);
  if (planned.eval) plan.eval->file = planner::place_data(*planned.eval, rows / plan::kEvalRows);
  keep_base_weights(directory, plan);
  // Stages may have another working directory.
  auto& recipe = plan.recipe;
  std::vector<std::string*> paths = {
      &recipe.model.path,      &recipe.model.weights_run,         &recipe.model.adapter,
      &recipe.data.tokenizer,  &recipe.pipeline.partition.plugin, &recipe.hosts.links,
      &recipe.hosts.ssh_config};
  for (recipe::DataFile& file : recipe.data.train) paths.push_back(&file.path);
  for (recipe::DataFile& file : recipe.data.eval) paths.push_back(&file.path);
  for (std::string& plugin : recipe.plugins) paths.push_back(&plugin);
  for (std::string* path : paths) {
    // Of a partition linked into this program, the tokenizer of bytes, or ssh without
    // configuration.
    const bool is_name = path->starts_with('#') || *path == "bytes" ||
                         (path == &recipe.hosts.ssh_config && *path == "none");
    if (!path->empty() && !is_name) *path = fs::absolute(*path).lexically_normal().string();
  }
  plan::RunFile run{net::RunId::random(), std::move(plan)};
  // First: it closes the directory to other users where the recipe holds variables of hosts.
  plan::write_run_file(directory.plan(), run);
  store::replace_file(directory.recipe(), recipe::recipe_to_toml(run.plan.recipe));
  return run;
}

}  // namespace

PreparedRun prepare_run(const fs::path& path, planner::PlannedRun planned,
                        control::RunDirectory::Existing existing) {
  // The rows of a large data set take seconds to write: Ctrl-C must not leave half of a run.
  const control::StopSignals signals;
  control::RunDirectory directory = control::RunDirectory::create(path, existing);
  try {
    plan::RunFile run = write_files(directory, std::move(planned));
    if (signals.count().load() > 0) {
      throw base::UserError(base::ExitCode::interrupted,
                            fmt::format("interrupted while {} was prepared; nothing was started, "
                                        "and the directory is removed",
                                        path.string()));
    }
    return {std::move(directory), std::move(run)};
  } catch (const std::exception&) {
    // It holds no run, so it need not stay.
    if (!directory.discard()) {
      warn(fmt::format("the earlier run is now {}", directory.moved_aside()->string()));
    }
    throw;
  }
}

}  // namespace strait::app

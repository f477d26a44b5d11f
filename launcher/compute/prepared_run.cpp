#include "launcher/compute/prepared_run.h"

#include "framework/store/atomic_file.h"
#include "framework/store/checkpoint.h"
#include "launcher/base/stop_signals.h"
#include "launcher/cli/run_options.h"

namespace strait::compute {
namespace {

namespace fs = std::filesystem;

// They may be of the run that has just been moved aside for this one.
fs::path present_path(const run::RunDirectory& directory, const fs::path& path) {
  fs::path whole = fs::absolute(path).lexically_normal();
  if (!directory.moved_aside()) return whole;
  const fs::path inside =
      whole.lexically_relative(fs::absolute(directory.path()).lexically_normal());
  if (inside.empty() || *inside.begin() == "..") return whole;
  return (fs::absolute(*directory.moved_aside()) / inside).lexically_normal();
}

// The files of a complete checkpoint are never written to, so one may have two names.
void link_or_copy(const fs::path& from, const fs::path& to, const store::ShardFile& file) {
  std::error_code error;
  const fs::path whole = fs::canonical(from, error);
  if (!error) fs::create_hard_link(whole, to, error);
  if (error) store::copy_shard(from, to, file);
}

// Of a run that begins with the weights of another one. One that trains adapters needs them for as
// long as it exists, but the other run prunes its checkpoints: it gets hard links to them, or
// copies where they are on another disk, in a folder of its own. Names in the plan where they are.
void keep_base_weights(const run::RunDirectory& directory, plan::Plan& plan) {
  recipe::Recipe::Model& model = plan.recipe.model;
  if (model.weights != recipe::Weights::run) return;
  const fs::path from = present_path(directory, model.weights_run);
  model.weights_run = from.string();
  if (!model.lora) return;
  store::Manifest manifest =
      store::open_checkpoint(from, store::Verify::sizes, store::Part::weights);
  const fs::path folder = fs::absolute(directory.path() / plan::kBaseFolder / from.filename());
  store::make_directory(folder);
  manifest.files = store::files_of(manifest, store::Part::weights);
  for (const store::ShardFile& file : manifest.files) {
    link_or_copy(from / file.name, folder / file.name, file);
  }
  manifest.notes.try_emplace(plan::kSourceNote, from.string());  // of a base: where that was from
  store::commit_checkpoint(folder, manifest);
  model.weights_run = folder.lexically_normal().string();
}

// Writes everything that stages and a later resume need, before anything is started.
plan::RunFile write_files(const run::RunDirectory& directory, planner::PlannedRun planned) {
  plan::Plan& plan = planned.plan;
  const std::filesystem::path rows = directory.path() / plan::kRowsFolder;
  plan.train.file = data::place_data(planned.train, rows / plan::kTrainRows);
  if (planned.eval) plan.eval->file = data::place_data(*planned.eval, rows / plan::kEvalRows);
  keep_base_weights(directory, plan);
  make_paths_absolute(plan.recipe);
  plan::RunFile run{net::RunId::random(), std::move(plan)};
  // First: it closes the directory to other users where the recipe holds variables of hosts.
  plan::write_run_file(directory.plan(), run);
  store::replace_file(directory.recipe(), recipe::recipe_to_toml(run.plan.recipe));
  return run;
}

}  // namespace

std::vector<std::string*> paths_in(recipe::Recipe& recipe) {
  std::vector<std::string*> paths = {
      &recipe.model.path,       &recipe.model.weights_run,         &recipe.model.adapter,
      &recipe.data.tokenizer,   &recipe.pipeline.partition.plugin, &recipe.hosts.links,
      &recipe.hosts.ssh_config, &recipe.train.preference.reference};
  for (data::DataFile& file : recipe.data.train) paths.push_back(&file.path);
  for (data::DataFile& file : recipe.data.eval) paths.push_back(&file.path);
  for (std::string& plugin : recipe.plugins) paths.push_back(&plugin);
  // Not of a partition linked into this program, the tokenizer of bytes, or ssh without
  // configuration.
  std::erase_if(paths, [&](const std::string* path) {
    return path->empty() || path->starts_with('#') || *path == "bytes" ||
           (path == &recipe.hosts.ssh_config && *path == "none");
  });
  return paths;
}

void make_paths_absolute(recipe::Recipe& recipe) {
  for (std::string* path : paths_in(recipe)) {
    *path = fs::absolute(*path).lexically_normal().string();
  }
}

PreparedRun prepare_run(const fs::path& path, planner::PlannedRun planned,
                        run::RunDirectory::Existing existing) {
  // The rows of a large data set take seconds to write: Ctrl-C must not leave half of a run.
  const base::StopSignals signals;
  run::RunDirectory directory = run::RunDirectory::create(path, existing);
  try {
    plan::RunFile run = write_files(directory, std::move(planned));
    if (signals.count().load() > 0) {
      throw base::UserError(base::ExitCode::interrupted,
                            "interrupted while {} was prepared; nothing was started, "
                            "and the directory is removed",
                            path.string());
    }
    return {std::move(directory), std::move(run)};
  } catch (const std::exception&) {
    // It holds no run, so it need not stay.
    if (!directory.discard()) {
      cli::warn(fmt::format("the earlier run is now {}", directory.moved_aside()->string()));
    }
    throw;
  }
}

}  // namespace strait::compute

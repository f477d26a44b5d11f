#include "launcher/cli/copied_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>

#include "framework/net/run_id.h"
#include "framework/store/atomic_file.h"
#include "framework/store/step_folders.h"
#include "framework/store/store_error.h"
#include "launcher/base/errors.h"
#include "launcher/base/run_file_names.h"
#include "launcher/cli/remove_unless_complete.h"
#include "launcher/cli/run_options.h"
#include "launcher/plan/run_files.h"

namespace strait::cli {
namespace {

namespace fs = std::filesystem;

// What is here of it. Returns the bytes.
std::uint64_t copy_checkpoint(const store::Checkpoint& checkpoint, const fs::path& folder,
                              const RemoveUnlessComplete& copy) {
  store::make_directory(folder);
  std::uint64_t bytes = 0;
  bool whole = true;
  for (const store::ShardFile& file : checkpoint.manifest.files) {
    if (!store::is_present(checkpoint.path / file.name)) {
      whole = false;
      continue;
    }
    copy.check();
    store::copy_shard(checkpoint.path / file.name, folder / file.name, file);
    bytes += file.size;
  }
  store::commit_checkpoint(folder, checkpoint.manifest, {},
                           whole ? store::Shards::here : store::Shards::elsewhere);
  return bytes;
}

// The weights under the run's adapters, if the run keeps them itself. Returns the bytes.
std::uint64_t copy_own_base(const fs::path& run, const fs::path& target, plan::RunFile& file,
                            const RemoveUnlessComplete& whole) {
  const std::optional<fs::path> base = plan::own_base(run, file.plan);
  if (!base) return 0;
  const fs::path copy =
      fs::absolute(target / plan::kBaseFolder / base->filename()).lexically_normal();
  std::uint64_t bytes = 0;
  try {
    bytes =
        copy_checkpoint({*base, store::open_checkpoint(*base, store::Verify::sizes)}, copy, whole);
  } catch (const store::StoreError& error) {
    if (error.kind() != store::StoreError::Kind::corrupt) throw;
    throw base::UserError(
        base::ExitCode::corrupt,
        fmt::format("{}; adapters of all steps were trained over these weights", error.what()));
  }
  file.recipe_hash = plan::recipe_hash(file);  // checkpoints have that of the former path
  file.plan.recipe.model.weights_run = copy.string();
  return bytes;
}

// The rows that the run has made of its data; those of a user's token file stay where they are.
void copy_rows(const fs::path& run, const fs::path& target, plan::Plan::Data& data) {
  const fs::path file = data.file;
  if (file.parent_path() != fs::absolute(run / plan::kRowsFolder).lexically_normal()) return;
  store::make_directory(target / plan::kRowsFolder);
  const fs::path copy =
      fs::absolute(target / plan::kRowsFolder / file.filename()).lexically_normal();
  store::copy_file(file, copy);
  data.file = copy.string();
}

}  // namespace

CopiedRun copy_run(const fs::path& run, const fs::path& target,
                   const store::Checkpoint& checkpoint) {
  check_new_or_empty(target, "copy into a new folder");
  plan::RunFile file = read_run(run);
  const bool whole = std::ranges::all_of(
      store::files_of(checkpoint.manifest, store::Part::all),
      [&](const store::ShardFile& one) { return store::is_present(checkpoint.path / one.name); });
  CopiedRun copied{checkpoint.manifest.step, whole ? store::Part::all : store::Part::weights, 0};
  RemoveUnlessComplete copy(target);
  store::make_directory(target);
  plan::protect_secrets(target, file.plan.recipe);
  copied.bytes =
      copy_checkpoint(checkpoint, store::checkpoint_directory(target, copied.step), copy);
  copied.bytes += copy_own_base(run, target, file, copy);
  copy_rows(run, target, file.plan.train);
  if (file.plan.eval) copy_rows(run, target, *file.plan.eval);
  for (const char* name : {base::kRecipeFile, base::kMetricsFile, base::kEventsFile}) {
    if (store::is_present(run / name)) store::copy_file(run / name, target / name);
  }
  // Hosts and locks distinguish runs by it.
  file.run = net::RunId::random();
  plan::write_run_file(target / base::kPlanFile, file);
  copy.complete();
  return copied;
}

}  // namespace strait::cli

#include "launcher/app/copied_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <system_error>

#include "framework/net/run_id.h"
#include "framework/store/atomic_file.h"
#include "framework/store/store_error.h"
#include "launcher/app/run_options.h"
#include "launcher/base/errors.h"
#include "launcher/control/run_file_names.h"
#include "launcher/plan/run_files.h"

namespace strait::app {
namespace {

namespace fs = std::filesystem;

bool is_present(const fs::path& path) {
  std::error_code error;
  const bool present = fs::exists(path, error);
  if (error) throw store::system_error("look at", path, error.value());
  return present;
}

// What is here of it. Returns the bytes.
std::uint64_t copy_checkpoint(const store::Checkpoint& checkpoint, const fs::path& folder) {
  store::make_directory(folder);
  std::uint64_t bytes = 0;
  bool whole = true;
  for (const store::ShardFile& file : checkpoint.manifest.files) {
    if (!is_present(checkpoint.path / file.name)) {
      whole = false;
      continue;
    }
    const store::FileSummary copied =
        store::copy_file(checkpoint.path / file.name, folder / file.name);
    if (copied != store::FileSummary{file.size, file.hash}) {
      throw store::StoreError(
          store::StoreError::Kind::corrupt,
          fmt::format("{} is damaged: its hash is {}, the manifest says {}",
                      (checkpoint.path / file.name).string(), copied.hash, file.hash));
    }
    bytes += copied.size;
  }
  store::commit_checkpoint(folder, checkpoint.manifest, {},
                           whole ? store::Shards::here : store::Shards::elsewhere);
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

// Removes what a copy that failed has written: the next one asks for a new folder. The disk may be
// full or fail, so what cannot be removed stays.
class Unfinished {
 public:
  explicit Unfinished(const fs::path& target) : target_(target), made_(!is_present(target)) {}
  Unfinished(const Unfinished&) = delete;
  Unfinished& operator=(const Unfinished&) = delete;
  ~Unfinished() {
    if (ended_) return;
    std::error_code ignored;
    if (made_) {
      fs::remove_all(target_, ignored);
      return;
    }
    // An empty folder that was there before stays.
    for (fs::directory_iterator entry(target_, ignored), end; !ignored && entry != end;
         entry.increment(ignored)) {
      std::error_code left;
      fs::remove_all(entry->path(), left);
    }
  }

  void end() { ended_ = true; }

 private:
  fs::path target_;
  bool made_;
  bool ended_ = false;
};

}  // namespace

CopiedRun copy_run(const fs::path& run, const fs::path& target,
                   const store::Checkpoint& checkpoint) {
  if (is_present(target) && !(fs::is_directory(target) && fs::is_empty(target))) {
    throw base::UserError(
        base::ExitCode::bad_input,
        fmt::format("{} exists already; copy into a new folder", target.string()));
  }
  plan::RunFile file = read_run(run);
  const bool whole = std::ranges::all_of(
      store::files_of(checkpoint.manifest, store::Part::all),
      [&](const store::ShardFile& one) { return is_present(checkpoint.path / one.name); });
  CopiedRun copied{checkpoint.manifest.step, whole ? store::Part::all : store::Part::weights, 0};
  Unfinished unfinished(target);
  store::make_directory(target);
  plan::protect_secrets(target, file.plan.recipe);
  copied.bytes = copy_checkpoint(checkpoint, store::checkpoint_directory(target, copied.step));
  copy_rows(run, target, file.plan.train);
  if (file.plan.eval) copy_rows(run, target, *file.plan.eval);
  for (const char* name : {control::kRecipeFile, control::kMetricsFile, control::kEventsFile}) {
    if (is_present(run / name)) store::copy_file(run / name, target / name);
  }
  // Hosts and locks distinguish runs by it.
  file.run = net::RunId::random();
  plan::write_run_file(target / control::kPlanFile, file);
  unfinished.end();
  return copied;
}

}  // namespace strait::app

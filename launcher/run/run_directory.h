#pragma once

#include "framework/store/sample.h"
#include "framework/store/step_folders.h"
#include "launcher/base/run_file_names.h"
#include "launcher/base/run_lock.h"

namespace strait::run {

// runs/<name>/, owned by the process that holds its lock, from create() or open() until the
// destructor. The lock of a dead holder is taken over. Guarantees one owner and rising generations;
// the writers of the files are responsible for their content. One thread.
class RunDirectory {
 public:
  enum class Existing { refuse, move_aside };

  // A new run. An existing one is a UserError (which offers resume, another name, --replace). With
  // move_aside, or if it has not trained a step, it is renamed to <name>.old-N. Nothing is deleted.
  static RunDirectory create(const std::filesystem::path& path, Existing existing);
  // A run to resume. Completes the changes of a resume that died while applying them
  // (complete_changes()). UserError: there is no run, or it is live (with its pid and start time).
  static RunDirectory open(const std::filesystem::path& path);

  // The current owner of the run at `path`, if any. Does not lock.
  static std::optional<base::LiveRun> live(const std::filesystem::path& path);

  RunDirectory(RunDirectory&&) = default;
  RunDirectory& operator=(RunDirectory&&) = default;

  // Higher than any before in this directory; durable when this returns.
  std::uint32_t next_generation();
  // The last one; 0: none.
  std::uint32_t generation() const;

  // Removes a directory that create() has made and in which nothing was started. An earlier run
  // gets its name back; false: that failed.
  bool discard();

  // The new path of an earlier run, if create() renamed one.
  const std::optional<std::filesystem::path>& moved_aside() const { return moved_aside_; }

  const std::filesystem::path& path() const { return path_; }
  // False: it was moved or removed during use.
  bool in_place() const { return lock_.is_of(path_); }
  std::filesystem::path plan() const { return path_ / base::kPlanFile; }
  std::filesystem::path recipe() const { return path_ / base::kRecipeFile; }
  std::filesystem::path events() const { return path_ / base::kEventsFile; }
  std::filesystem::path metrics() const { return path_ / base::kMetricsFile; }
  std::filesystem::path status() const { return status(path_); }
  std::filesystem::path checkpoints() const { return path_ / store::kCheckpointsFolder; }
  std::filesystem::path log(const std::string& process) const {  // "1.0"
    return path_ / base::log_file(process);
  }

  static std::filesystem::path status(const std::filesystem::path& path) {
    return path / base::kStatusFile;
  }

 private:
  RunDirectory(std::filesystem::path path, base::RunLock lock);

  std::filesystem::path path_;
  base::RunLock lock_;
  std::optional<std::filesystem::path> moved_aside_;
};

// The command that starts the run of this directory again from its recipe.
std::string run_again_command(const std::filesystem::path& run);

class RunDirectory;

// The changes of a resume to the files of a run, all or nothing. apply_changes() first writes all
// of them to a journal, a single file. With the rename of that file the changes have happened. The
// rest is completed by the same call or, if this process dies meanwhile, by the next
// RunDirectory::open().
struct ResumeChanges {
  // The checkpoint that the run continues from.
  std::optional<store::Step> from;
  // The new texts of plan.json and recipe.toml. Absent: unchanged.
  std::optional<std::string> plan;
  std::optional<std::string> recipe;
};

// Sets aside the checkpoints later than `from`, which exists. Removes later steps from
// metrics.jsonl, because they will be trained and written again, and replaces plan and recipe. Call
// it when every process is up and has loaded: until then a start may fail, and the next one must
// find the run unchanged. StoreError: a change failed; the next open() tries again.
void apply_changes(const RunDirectory& run, const ResumeChanges& changes);

// Completes changes that an earlier process began to apply; otherwise does nothing. StoreError.
// UserError: they are of another build.
void complete_changes(const RunDirectory& run);

}  // namespace strait::run

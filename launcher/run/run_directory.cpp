#include "launcher/run/run_directory.h"

#include <sstream>

#include "framework/fields/json_fields.h"
#include "framework/store/atomic_file.h"
#include "framework/store/checkpoint.h"
#include "framework/store/input_file.h"
#include "framework/store/store_error.h"
#include "launcher/base/errors.h"
#include "launcher/base/generation_lock.h"
#include "launcher/base/own_program.h"
#include "launcher/base/text.h"

namespace strait::run {
namespace {

namespace fs = std::filesystem;

// A start that failed before its first step leaves nothing to resume, so the same command may be
// repeated.
bool has_trained(const fs::path& path) {
  const fs::path metrics = path / base::kMetricsFile;
  if (fs::exists(metrics) && fs::file_size(metrics) > 0) return true;
  const fs::path checkpoints = path / store::kCheckpointsFolder;
  return fs::is_directory(checkpoints) && !fs::is_empty(checkpoints);
}

// A directory with only a lock file was left by a start that failed early; it is not a run.
bool holds_a_run(const fs::path& path) {
  if (!fs::exists(path)) return false;
  if (!fs::is_directory(path)) {
    throw base::UserError(base::ExitCode::bad_input,
                          "cannot create the run directory {}: it exists and is not a directory",
                          path.string());
  }
  for (const fs::directory_entry& entry : fs::directory_iterator(path)) {
    if (entry.path().filename() != base::kLockFile) return true;
  }
  return false;
}

// Renames a run to make room for a new one of the same name. Renames it back if the new one fails.
class FormerRun {
 public:
  explicit FormerRun(fs::path path) : path_(std::move(path)) {}
  FormerRun(const FormerRun&) = delete;
  FormerRun& operator=(const FormerRun&) = delete;
  ~FormerRun() {
    std::error_code ignored;  // the caller already has an error to report
    if (aside_) fs::rename(*aside_, path_, ignored);
  }

  void move_aside() {
    for (int n = 1;; ++n) {
      fs::path old = path_;
      old += fmt::format(".old-{}", n);
      if (fs::exists(old)) continue;
      fs::rename(path_, old);
      aside_ = std::move(old);
      return;
    }
  }
  std::optional<fs::path> release() { return std::exchange(aside_, std::nullopt); }

 private:
  fs::path path_;
  std::optional<fs::path> aside_;
};

// Removes the temporary files of a process that was killed while it replaced a file of the run.
void remove_temporary_files(const fs::path& path) {
  for (const char* file :
       {base::kPlanFile, base::kRecipeFile, base::kMetricsFile, base::kGenerationFile,
        base::kJournalFile, base::kReportFile, base::kTraceFile}) {
    store::remove_abandoned(path / file);
  }
}

// For a new directory. If the disk has no room for a lock, the directory is removed too.
base::RunLock lock_new(const fs::path& path) {
  try {
    return base::RunLock(path);
  } catch (const base::UserError& error) {
    std::error_code ignored;
    const bool held = error.code() == base::ExitCode::bad_input;
    if (!held) fs::remove(path / base::kLockFile, ignored);
    if (!held) fs::remove(path, ignored);
    throw;
  }
}

// "--set name=dates-2": a name that no run has.
std::string flag_of_free_name(const fs::path& path) {
  for (int n = 2;; ++n) {
    fs::path other = path;
    other += fmt::format("-{}", n);
    if (!store::is_present(other)) {
      return "--set name=" + base::shell_word(other.filename().string());
    }
  }
}

[[noreturn]] void refuse_existing(const fs::path& path) {
  const std::string name = flag_of_free_name(path);
  const bool saved = !store::committed_steps(path).empty();
  throw base::UserError(
      base::ExitCode::bad_input,
      saved ? fmt::format("{} already holds a run. Resume it: {}; choose another name: {}; or move "
                          "it aside: --replace",
                          path.string(), base::strait_command("resume", path), name)
            : fmt::format("{} already holds a run, which has no checkpoint to resume from. Move it "
                          "aside: --replace; or choose another name: {}",
                          path.string(), name));
}

fs::path without_trailing_slash(const fs::path& path) {
  return path.has_filename() ? path : path.parent_path();
}

}  // namespace

RunDirectory::RunDirectory(fs::path path, base::RunLock lock)
    : path_(std::move(path)), lock_(std::move(lock)) {}

RunDirectory RunDirectory::create(const fs::path& given, Existing existing) {
  const fs::path path = without_trailing_slash(given);
  try {
    FormerRun former(path);
    if (holds_a_run(path)) {
      if (existing == Existing::refuse && (has_trained(path) || live(path))) {
        if (live(path)) const base::RunLock refusal(path);
        refuse_existing(path);
      }
      const base::RunLock lock(path);  // a live run is never moved
      former.move_aside();
    }
    store::make_directory(path);
    RunDirectory directory(path, lock_new(path));
    directory.moved_aside_ = former.release();
    try {
      fs::create_directories(path / base::kLogsFolder);
      fs::create_directories(directory.checkpoints());
    } catch (const fs::filesystem_error& error) {
      if (directory.discard()) throw;
      throw base::UserError(base::ExitCode::storage_io,
                            "cannot create the run directory {}: {}; the earlier run is now {}",
                            path.string(), error.code().message(),
                            directory.moved_aside()->string());
    }
    return directory;
  } catch (const fs::filesystem_error& error) {
    throw base::UserError(base::ExitCode::storage_io, "cannot create the run directory {}: {}",
                          path.string(), error.code().message());
  }
}

RunDirectory RunDirectory::open(const fs::path& given) {
  const fs::path path = without_trailing_slash(given);
  if (!store::is_present(path / base::kPlanFile)) base::refuse_no_run(path);
  RunDirectory directory(path, base::RunLock(path));
  complete_changes(directory);
  remove_temporary_files(path);
  fs::create_directories(path / base::kLogsFolder);
  return directory;
}

bool RunDirectory::discard() {
  std::error_code error;  // the caller already has an error to report
  fs::remove_all(path_, error);
  error.clear();
  if (moved_aside_) fs::rename(*moved_aside_, path_, error);
  return !error;
}

std::optional<base::LiveRun> RunDirectory::live(const fs::path& path) {
  return base::RunLock::holder(path);
}

std::uint32_t RunDirectory::generation() const {
  const fs::path file = path_ / base::kGenerationFile;
  // If the file is lost, counting must not start from 1: processes of this run would look older.
  if (!store::is_present(file)) return base::begun_generation(path_);
  return base::read_generation(file);
}

std::uint32_t RunDirectory::next_generation() {
  const std::uint32_t next = generation() + 1;
  store::replace_file(path_ / base::kGenerationFile, fmt::format("{}\n", next));
  return next;
}

std::string run_again_command(const fs::path& run) {
  return base::strait_command("run", run / base::kRecipeFile) + " --replace";
}

void describe(auto& fields, fields::Is<ResumeChanges> auto& changes) {
  fields("from", changes.from), fields("plan", changes.plan), fields("recipe", changes.recipe);
}

namespace {

namespace fs = std::filesystem;

fs::path journal_file(const RunDirectory& run) { return run.path() / base::kJournalFile; }

constexpr std::uint64_t kMostBytes = std::numeric_limits<std::uint64_t>::max();

std::string whole_text(const fs::path& file) { return store::read_text_file(file, kMostBytes); }

void write_changes(const fs::path& file, const ResumeChanges& changes) {
  store::replace_file(file, fields::to_object(changes).dump(1) + "\n");
}

std::optional<ResumeChanges> read_changes(const fs::path& file) {
  if (!store::is_present(file)) return std::nullopt;
  try {
    return fields::from_text<ResumeChanges>(whole_text(file), file.filename().string(),
                                            {.string_bytes = kMostBytes});
  } catch (const base::MessageError& error) {
    throw base::UserError(base::ExitCode::mismatch,
                          "{} is not of this build ({}); resume with the build that wrote it",
                          file.string(), error.what());
  }
}

void remove_file(const fs::path& file) {
  std::error_code error;
  fs::remove(file, error);
  if (error) throw store::system_error("remove", file, error.value());
}

void drop_later_steps(const fs::path& metrics, store::Step step) {
  if (!store::is_present(metrics)) return;
  const std::string text = whole_text(metrics);
  std::istringstream lines(text);
  std::string kept;
  for (std::string line; std::getline(lines, line);) {
    const nlohmann::json parsed = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    // A crash can leave an incomplete last line; its step is in no checkpoint.
    if (!parsed.is_object() || !parsed.contains("step")) continue;
    if (!parsed["step"].is_number_integer()) continue;
    if (parsed["step"].get<std::int64_t>() <= number(step)) kept += line + "\n";
  }
  if (kept != text) store::replace_file(metrics, kept);
}

// Idempotent: it may be repeated after a crash at any point.
void complete(const RunDirectory& run, const ResumeChanges& changes) {
  if (changes.from) {
    store::set_aside_newer(run.path(), *changes.from);
    drop_later_steps(run.metrics(), *changes.from);
  }
  if (changes.recipe) store::replace_file(run.recipe(), *changes.recipe);
  if (changes.plan) store::replace_file(run.plan(), *changes.plan);
  // The journal goes last: as long as it exists, the next start completes the changes.
  remove_file(journal_file(run));
  // Before training continues: repeated later, these changes would undo it.
  store::sync_directory(run.path());
}

}  // namespace

void apply_changes(const RunDirectory& run, const ResumeChanges& changes) {
  write_changes(journal_file(run), changes);
  complete(run, changes);
}

void complete_changes(const RunDirectory& run) {
  if (const auto changes = read_changes(journal_file(run))) complete(run, *changes);
}

}  // namespace strait::run

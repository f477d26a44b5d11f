#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "launcher/control/run_lock.h"

namespace strait::control {

// runs/<name>/ and who may write into it: the one process that holds its lock, from create() or
// open() until this object ends. A lock whose holder is dead is taken over. Only paths and the two
// promises (one owner, rising generations) live here; what the files mean is known by those who
// write them. One thread.
class RunDirectory {
 public:
  enum class Existing { refuse, move_aside };

  // A new run. Where there is one already: a UserError that offers resume, another name and
  // --replace; with move_aside, or where it has not trained a single step, it becomes
  // <name>.old-N, and nothing is deleted.
  static RunDirectory create(const std::filesystem::path& path, Existing existing);
  // A run to go on with. UserError: there is none, or it is live (names the pid and since when).
  static RunDirectory open(const std::filesystem::path& path);

  // Who owns the run at `path` now, if anybody. Takes nothing.
  static std::optional<LiveRun> live(const std::filesystem::path& path);

  RunDirectory(RunDirectory&&) = default;
  RunDirectory& operator=(RunDirectory&&) = default;

  // One more than ever before in this directory; durable when this returns.
  std::uint32_t next_generation();

  // Where the earlier run went, if create() moved one aside.
  const std::optional<std::filesystem::path>& moved_aside() const { return moved_aside_; }

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path plan() const { return path_ / "plan.json"; }
  std::filesystem::path recipe() const { return path_ / "recipe.toml"; }
  std::filesystem::path events() const { return path_ / "events.jsonl"; }
  std::filesystem::path metrics() const { return path_ / "metrics.jsonl"; }
  std::filesystem::path status() const { return status(path_); }
  std::filesystem::path checkpoints() const { return path_ / "checkpoints"; }
  std::filesystem::path log(const std::string& process) const {  // "1.0"
    return path_ / "logs" / (process + ".log");
  }

  static std::filesystem::path status(const std::filesystem::path& path) {
    return path / "status.json";
  }

 private:
  RunDirectory(std::filesystem::path path, RunLock lock);

  std::filesystem::path path_;
  RunLock lock_;
  std::optional<std::filesystem::path> moved_aside_;
};

// A folder of this user's alone, among temporary files, that goes with this object.
class ScratchFolder {
 public:
  // `purpose` is part of its name. UserError (storage_io): it cannot be made.
  explicit ScratchFolder(const std::string& purpose);
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  ~ScratchFolder();

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace strait::control

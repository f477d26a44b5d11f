#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "launcher/base/lock_file.h"

namespace strait::base {

// The launcher that owns a run directory.
struct LiveRun : ProcessIdentity {
  std::string since;  // "2025-03-01 14:02:11"
  std::string job;    // its Slurm job; empty: none

  // The process still exists; a later one with the same pid does not count. On another host this
  // cannot be determined. It counts as alive, unless this host has that name and has booted since,
  // or this process is a restart of the same Slurm job.
  bool alive() const;
  bool operator==(const LiveRun&) const = default;
  std::string sentence() const;  // "process 12, since …", "process 12 of host b, since …"
  // "process 12 is suspended …", with the command that lets it go on; empty: it is not.
  std::string suspension() const;
};

// The file <run>/lock: its holder may write into the run. Held until the destructor or the end of
// the process, however it ends. The lock of a dead process is taken over. On a shared file system
// the holder may run on another host.
class RunLock {
 public:
  // UserError: it is held (by which process, since when), or it cannot be created.
  explicit RunLock(const std::filesystem::path& run);
  RunLock(RunLock&&) = default;
  RunLock& operator=(RunLock&&) = default;
  ~RunLock();

  // False: the file or its directory is gone, or the file names another holder or none.
  bool is_of(const std::filesystem::path& run) const;

  // The current holder, if any. Does not lock.
  static std::optional<LiveRun> holder(const std::filesystem::path& run);

 private:
  LockFile file_;
};

}  // namespace strait::base

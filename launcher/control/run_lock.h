#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "framework/store/file_descriptor.h"

namespace strait::control {

// The launcher that owns a run directory now.
struct LiveRun {
  std::int64_t pid = 0;
  std::uint64_t started = 0;  // clock ticks from boot, as the kernel says: the pid may be reused
  std::string since;          // "2025-03-01 14:02:11"
  std::string host;           // where it runs
  std::string boot;           // what that machine calls the time since it was started
  std::string job;            // the Slurm job that it is in; empty: none

  bool here() const;  // on this machine, whose processes we can see
  // That very process, not a later one of the same number. Of another machine nobody can tell from
  // here: it counts as alive, but for one that was started anew since, and a Slurm job that we are.
  bool alive() const;
  std::string sentence() const;  // "process 12, since …", "process 12 of host b, since …"
};

// The file <run>/lock: who may write into the run. Held until this object ends or its process dies,
// however it dies: a lock whose holder is dead is taken over without a question. On a file system
// of several machines it may be another one's.
class RunLock {
 public:
  // UserError: somebody holds it (who and since when), or it cannot be made.
  explicit RunLock(const std::filesystem::path& run);
  RunLock(RunLock&&) = default;
  RunLock& operator=(RunLock&&) = default;
  ~RunLock();

  // Who holds it now, if anybody. Takes nothing.
  static std::optional<LiveRun> holder(const std::filesystem::path& run);

 private:
  store::FileDescriptor descriptor_;
};

}  // namespace strait::control

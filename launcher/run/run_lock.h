#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "framework/store/file_descriptor.h"

namespace strait::launcher {

// The launcher that owns a run directory now.
struct LiveRun {
  std::int64_t pid = 0;
  std::uint64_t started = 0;  // clock ticks from boot, as the kernel says: the pid may be reused
  std::string since;          // "2025-03-01 14:02:11"

  bool alive() const;  // that very process, not a later one of the same number
};

// The file <run>/lock: who may write into the run. Held until this object ends or its process dies,
// however it dies: a lock whose holder is dead is taken over without a question.
class RunLock {
 public:
  // UserError: somebody holds it (pid and since when), or it cannot be made.
  explicit RunLock(const std::filesystem::path& run);
  RunLock(RunLock&&) = default;
  RunLock& operator=(RunLock&&) = default;
  ~RunLock();

  // Who holds it now, if anybody. Takes nothing.
  static std::optional<LiveRun> holder(const std::filesystem::path& run);

 private:
  store::FileDescriptor descriptor_;
};

}  // namespace strait::launcher

#pragma once

#include "framework/store/step_folders.h"
#include "launcher/base/errors.h"
#include "launcher/base/stop_signals.h"

namespace strait::cli {

// UserError: the name is empty, or there is something already; its message ends with the remedy.
inline void check_new_or_empty(const std::filesystem::path& target, const char* remedy) {
  if (target.empty()) {
    throw base::UserError(base::ExitCode::bad_input, "the folder's name is empty; {}", remedy);
  }
  if (!store::is_present(target)) return;
  if (std::filesystem::is_directory(target) && std::filesystem::is_empty(target)) return;
  throw base::UserError(base::ExitCode::bad_input, "{} exists already; {}", target.string(),
                        remedy);
}

// Removes what was written into a new or empty directory unless all of it was: the next attempt
// asks for a new one. The disk may be full or fail, so what cannot be removed stays. While it
// lives, Ctrl-C does not end the process, which has to ask check().
class RemoveUnlessComplete {
 public:
  explicit RemoveUnlessComplete(const std::filesystem::path& target)
      : target_(target), made_(!store::is_present(target)) {}
  RemoveUnlessComplete(const RemoveUnlessComplete&) = delete;
  RemoveUnlessComplete& operator=(const RemoveUnlessComplete&) = delete;
  ~RemoveUnlessComplete() {
    if (complete_) return;
    std::error_code ignored;
    if (made_) {
      std::filesystem::remove_all(target_, ignored);
      return;
    }
    // An empty folder that was there before stays.
    for (std::filesystem::directory_iterator entry(target_, ignored), end; !ignored && entry != end;
         entry.increment(ignored)) {
      std::error_code left;
      std::filesystem::remove_all(entry->path(), left);
    }
  }

  void complete() { complete_ = true; }

  // UserError (interrupted): the user has pressed Ctrl-C.
  void check() const {
    if (signals_.count() == 0) return;
    throw base::UserError(base::ExitCode::interrupted,
                          "interrupted; what was written to {} is removed", target_.string());
  }

 private:
  const base::StopSignals signals_;
  std::filesystem::path target_;
  bool made_;
  bool complete_ = false;
};

}  // namespace strait::cli

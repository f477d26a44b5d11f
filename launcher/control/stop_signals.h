#pragma once

#include <atomic>
#include <csignal>

namespace strait::control {

// The request of `strait stop`. However often it comes, it asks for the end after the step: it
// never counts as the second request, which would lose that step.
constexpr int kAskSignal = SIGUSR2;

// While it lives, SIGINT and SIGTERM are counted, kAskSignal counts where there was no request, and
// none of them ends the process. SIGHUP (terminal closed) and SIGPIPE (reader closed) are ignored,
// so that the run survives both, and SIGXFSZ (a file is as large as allowed), so that the write
// fails. They nest: an inner one goes on counting where the outer one is.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  // Stop requests so far; for Coordinator::run.
  const std::atomic<int>& count() const;

  // From now on, while there is no object of this class, SIGINT and SIGTERM end the process as by
  // default, but `line` appears on stderr first. Signals that the parent has set to be ignored stay
  // ignored. May be called before libraries are initialised; `line` is never freed.
  static void announce(const char* line = "strait: interrupted\n");

  // From now on SIGUSR1 (Slurm's time limit is near) asks likewise, also if it arrives while there
  // is no object of this class.
  static void expect_warning();
  // SIGUSR1 has arrived since expect_warning().
  static bool warned();
};

}  // namespace strait::control

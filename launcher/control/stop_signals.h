#pragma once

#include <atomic>

namespace strait::control {

// While it lives, SIGINT and SIGTERM are counted and do not end the process. SIGHUP (terminal
// closed) and SIGPIPE (reader closed) are ignored, so that the run survives both. They nest: an
// inner one goes on counting where the outer one is.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  // Stop requests so far; for Coordinator::run.
  const std::atomic<int>& count() const;

  // From now on SIGUSR1 (Slurm's time limit is near) counts as a stop request, also if it arrives
  // while there is no object of this class.
  static void expect_warning();
  // SIGUSR1 has arrived since expect_warning().
  static bool warned();
};

}  // namespace strait::control

#pragma once

#include <atomic>

namespace strait::control {

// From construction to destruction: SIGINT and SIGTERM are counted instead of killing us; a closed
// terminal (SIGHUP) and a reader that went away (SIGPIPE) are ignored, so that a run outlives both.
// One at a time in a process.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  // How often the user asked us to stop; for Coordinator::run.
  const std::atomic<int>& count() const;

  // From now on, and beyond any object of this class, SIGUSR1 tells that our time is nearly up: it
  // counts as being asked to stop, also when it came before the counting began.
  static void expect_warning();
  static bool warned();  // it has come since
};

}  // namespace strait::control

#pragma once

#include <atomic>

namespace strait::launcher {

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
};

}  // namespace strait::launcher

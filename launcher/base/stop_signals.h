#pragma once

#include <atomic>
#include <csignal>

namespace strait::base {

// The request of `strait stop`. However often it arrives, it asks for the end after the step. It
// never counts as the second request, which would lose that step.
constexpr int kAskSignal = SIGUSR2;

// While an object lives, SIGINT and SIGTERM are counted, kAskSignal counts if there was no request,
// and none of them ends the process. SIGHUP (terminal closed) and SIGPIPE (reader closed) are
// ignored, so that the run survives both. SIGXFSZ (file size limit) is ignored, so that the write
// fails. Objects nest: an inner one continues the count of the outer one.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;
  // One that lives as long as the process, from the first call on.
  static const StopSignals& for_good();

  // Stop requests so far; for Coordinator::run.
  const std::atomic<int>& count() const;

  // From now on, while no object of this class lives, SIGINT and SIGTERM end the process as by
  // default, but `line` is written to stderr first. kAskSignal does the same, with the exit code
  // `interrupted`: nothing is there yet that could be saved. Signals that the parent has ignored
  // stay ignored; those that hold() or the parent has blocked are delivered. May be called before
  // libraries are initialised; `line` is never freed.
  static void announce(const char* line = "strait: interrupted\n");

  // These signals wait for the next announce(), in this program or in one that takes its place:
  // exec makes them deadly again, long before libraries are loaded.
  static void hold();

  // The first request was kAskSignal: somebody has asked for the end of the run. Otherwise a signal
  // may as well be a scheduler's, which will start the run again.
  static bool asked();
};

}  // namespace strait::base

#pragma once

#include "launcher/run/control_message.h"

namespace strait::run {

struct WatchdogLimits {
  std::chrono::milliseconds start{60'000};   // until every process has sent Hello
  std::chrono::milliseconds silence{5'000};  // a stage reports every second
  std::chrono::milliseconds hold{0};  // replaces `silence` in training, when links may reconnect
  // At least this; ten median steps if that is longer. Before a step has been measured: five times
  // this, or ten steps of the plan's forecast.
  std::chrono::milliseconds progress{60'000};
  double forecast_step_seconds = 0;
  std::chrono::milliseconds standstill{10'000};  // until a standstill is reported; 0: never
};

// The process that holds up the run, and a sentence that says why.
struct StallDiagnosis {
  net::ProcessName process;
  std::string sentence;
  bool silent = false;  // it sends nothing, so Abort would not reach it
};

// Finds processes that are missing, silent or stuck, from messages and times that the caller
// passes. Pure. Timeouts adapt to what was measured, so that users need not set them.
class Watchdog {
 public:
  using Time = std::chrono::steady_clock::time_point;

  Watchdog(const std::vector<net::ProcessName>& processes, WatchdogLimits limits, Time start);

  void heard(net::ProcessName process, Time now);  // any message
  void progress(net::ProcessName process, const Progress& progress, Time now);
  void finished(net::ProcessName process);         // done or gone: ignored from now on
  void begin(net::ProcessName process, Time now);  // a new process, before its Hello
  void restart(Time now);                          // a phase begins: restarts all progress clocks
  void unblock(Time now);  // what all may have waited for is gone: restarts them too

  // `median_step_seconds`: 0 before the first step. None: nothing is wrong. Call several times a
  // second. A long gap between two calls means that this process was stopped; it is subtracted from
  // all times.
  std::optional<StallDiagnosis> judge(Time now, double median_step_seconds);
  // While training: nothing has moved for 10 s, or for a median step if that is longer. Says which
  // process holds up the others, and why; the run may well continue. None: something moves.
  std::optional<StallDiagnosis> standstill(Time now, double median_step_seconds) const;
  // The sentence of a standstill that begins; empty: one has ended. None: no change.
  std::optional<std::string> standstill_change(Time now, double median_step_seconds);

 private:
  struct Watched {
    bool finished = false;
    Time start;
    std::optional<Time> heard;  // none: no Hello yet
    Time moved;                 // when its counter changed, or when the phase began
    bool ever_moved = false;
    std::optional<Progress> latest;
  };

  std::optional<StallDiagnosis> missing(Time now) const;
  std::optional<StallDiagnosis> silent(Time now) const;
  std::optional<StallDiagnosis> stuck(Time now, double median_step_seconds) const;
  StallDiagnosis diagnose(net::ProcessName first, Time now) const;
  void forgive(std::chrono::nanoseconds gap);

  std::map<net::ProcessName, Watched> watched_;
  WatchdogLimits limits_;
  Time::duration longest_hello_{};  // from the start of its process
  bool training_ = false;
  bool still_ = false;  // the last result of standstill_change()
  Time judged_;
};

}  // namespace strait::run

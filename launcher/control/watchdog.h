#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "launcher/control/control_message.h"

namespace strait::control {

struct WatchdogLimits {
  std::chrono::milliseconds start{60'000};     // until every process has said hello
  std::chrono::milliseconds silence{5'000};    // a stage speaks every second
  std::chrono::milliseconds hold{0};           // instead, once training, where paths may break
  std::chrono::milliseconds progress{60'000};  // at least; ten median steps if that is longer
};

// Who is to blame, and the sentence that says why.
struct StallDiagnosis {
  net::ProcessName process;
  std::string sentence;
  bool silent = false;  // it does not even talk: asking it to leave is of no use
};

// Judges from messages and times handed in, whether a process is missing, silent or stuck. Pure:
// the caller brings the clock. Limits adapt to what was seen; nobody has to guess them.
class Watchdog {
 public:
  using Time = std::chrono::steady_clock::time_point;

  Watchdog(const std::vector<net::ProcessName>& processes, WatchdogLimits limits, Time start);

  void heard(net::ProcessName process, Time now);  // any message
  void progress(net::ProcessName process, const Progress& progress, Time now);
  void finished(net::ProcessName process);         // Done, or known to have ended: no longer judged
  void begin(net::ProcessName process, Time now);  // as a new one: its hello is still to come
  void restart(Time now);  // a new phase begins: all clocks of progress at zero
  void unblock(Time now);  // what all may have waited for is over: their clocks at zero too

  // Nothing: all is well as far as one can tell. Call several times a second; a long gap between
  // two calls means that we were stopped ourselves, and is not held against anybody.
  std::optional<StallDiagnosis> judge(Time now, double median_step_seconds);

 private:
  struct Watched {
    bool finished = false;
    Time start;
    std::optional<Time> heard;  // none: it has not said hello
    Time moved;                 // its counter, or the start of the phase
    bool ever_moved = false;
    std::optional<Progress> latest;
  };

  std::optional<StallDiagnosis> missing(Time now) const;
  std::optional<StallDiagnosis> silent(Time now) const;
  std::optional<StallDiagnosis> stuck(Time now, double median_step_seconds) const;
  StallDiagnosis blame(net::ProcessName first, Time now) const;
  void forgive(std::chrono::nanoseconds gap);

  std::map<net::ProcessName, Watched> watched_;
  WatchdogLimits limits_;
  Time::duration longest_hello_{};  // from its start
  Time judged_;
};

}  // namespace strait::control

#pragma once

#include "launcher/run/control_message.h"
#include "launcher/run/forecast_check.h"
#include "launcher/run/outcome.h"
#include "launcher/run/step_ledger.h"

namespace strait::run {

// The current state of one process.
struct ProcessReport {
  net::ProcessName process;
  std::string host;
  std::int64_t pid = 0;
  std::optional<Progress> progress;
  double silent_seconds = 0;  // since its last message
};

// Replicas that are absent when the run begins.
struct ReplicasAbsent {
  std::vector<std::uint32_t> absent;
  std::vector<std::uint32_t> present;
};

// A replica left or was evicted; the run continues without it.
struct ReplicaLeft {
  std::uint32_t replica = 0;
  store::Step step{};  // updates made by then
  std::string why;     // one sentence
  std::vector<std::uint32_t> remaining;
};

// An absent replica is a member again.
struct ReplicaJoined {
  std::uint32_t replica = 0;
  store::Step step{};  // updates made by then
  std::vector<std::uint32_t> replicas;
};

// A rejoin of an absent replica begins or, if `failure` gives the reason in one sentence, has
// failed.
struct RejoinAttempt {
  std::uint32_t replica = 0;
  std::string failure;
};

// The run restarts by itself after a failure.
struct Restart {
  std::int64_t number = 0;         // in a row, without a new checkpoint
  std::int64_t limit = 0;          // of restarts in a row
  std::uint32_t generation = 0;    // the generation that begins
  store::Step from{};              // the step of its checkpoint; 0: from the beginning
  std::string cause;               // of the failure, one sentence
  std::vector<std::string> moves;  // one sentence per host that was replaced or left out
};

// Receives the events of a run; implemented by the console and the run's files. Called on the
// coordinator's thread, one call at a time. Must return at once: nothing slower than appending a
// line to a file.
class RunObserver {
 public:
  RunObserver() = default;
  RunObserver(const RunObserver&) = delete;
  RunObserver& operator=(const RunObserver&) = delete;
  virtual ~RunObserver() = default;

  virtual void connected(const Hello& /*hello*/) {}
  virtual void training(store::Step /*from*/, store::Step /*to*/) {}
  virtual void reports(const std::vector<ProcessReport>& /*processes*/) {}  // every second
  virtual void step(const StepLine& /*line*/) {}
  virtual void evaluated(const Evaluated& /*evaluated*/) {}
  virtual void checkpointed(store::Step /*step*/) {}
  // The newest checkpoint in memory, and where it is.
  virtual void in_memory(store::Step /*step*/, const std::string& /*place*/) {}
  virtual void checkpoint_failed(store::Step /*step*/, const std::string& /*text*/) {}
  virtual void event(const std::string& /*source*/, const Event& /*event*/) {}
  virtual void replicas_absent(const ReplicasAbsent& /*absent*/) {}  // as training begins
  virtual void replica_left(const ReplicaLeft& /*gone*/) {}
  virtual void rejoin_attempted(const RejoinAttempt& /*attempt*/) {}
  virtual void replica_joined(const ReplicaJoined& /*joined*/) {}
  // Nothing moves; `why` names the process or link that the others wait for. Empty: something moves
  // again.
  virtual void standing_still(const std::string& /*why*/) {}
  // All links and processes that are slower than expected, one sentence each; called on changes.
  virtual void slow_parts(const std::vector<std::string>& /*sentences*/) {}
  // The parts of a step, forecast and measured; every few steps.
  virtual void parts_measured(const std::vector<PartSeconds>& /*parts*/) {}
  virtual void stopping(bool /*now*/) {}
  // A remark before a launch or between two.
  virtual void note(const std::string& /*text*/) {}
  virtual void restarting(const Restart& /*restart*/) {}  // between two launches
  virtual void ended(const Outcome& /*outcome*/) {}
};

// Calls a function of all observers of a run, in the order in which they were given.
class RunObservers {
 public:
  explicit RunObservers(std::vector<RunObserver*> observers) : observers_(std::move(observers)) {}

  template <class... Arguments, class... Given>
  void notify(void (RunObserver::*what)(Arguments...), const Given&... given) const {
    for (RunObserver* observer : observers_) (observer->*what)(given...);
  }
  // An event of the launcher itself; nothing if it has no text.
  void launcher_event(const Event& event) const {
    if (!event.text.empty()) notify(&RunObserver::event, std::string("the launcher"), event);
  }

 private:
  std::vector<RunObserver*> observers_;
};

// Reports events of the launcher itself to these observers.
inline std::function<void(const Event&)> launcher_events(std::vector<RunObserver*> observers) {
  return
      [all = RunObservers(std::move(observers))](const Event& event) { all.launcher_event(event); };
}

}  // namespace strait::run

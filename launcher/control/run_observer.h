#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launcher/control/control_message.h"
#include "launcher/control/outcome.h"
#include "launcher/control/step_ledger.h"

namespace strait::control {

// What is known of one process now.
struct ProcessReport {
  net::ProcessName process;
  std::string host;
  std::int64_t pid = 0;
  std::optional<Progress> progress;
  double silent_seconds = 0;  // since its last message
};

// Replicas that the run begins without.
struct ReplicasAbsent {
  std::vector<std::uint32_t> absent;
  std::vector<std::uint32_t> there;
};

// A replica that the run goes on without.
struct ReplicaLeft {
  std::uint32_t replica = 0;
  store::Step step{};  // updates that all had made by then
  std::string why;     // one sentence
  std::vector<std::uint32_t> left;
};

// A replica that was not there and takes part (again).
struct ReplicaJoined {
  std::uint32_t replica = 0;
  store::Step step{};  // updates that the others had made by then
  std::vector<std::uint32_t> replicas;
};

// A replica that is not there is being brought (back); `failed`: it does not come, in one sentence.
struct ReplicaReturns {
  std::uint32_t replica = 0;
  std::string failed;
};

// Who looks on while a run goes: the console, the files of the run. Called on the coordinator's
// thread, one call at a time; must return at once (nothing slower than appending a line to a file).
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
  virtual void checkpoint_failed(store::Step /*step*/, const std::string& /*text*/) {}
  virtual void event(const std::string& /*who*/, const Event& /*event*/) {}
  virtual void replicas_absent(const ReplicasAbsent& /*absent*/) {}  // as training begins
  virtual void replica_left(const ReplicaLeft& /*gone*/) {}
  virtual void replica_returns(const ReplicaReturns& /*returns*/) {}
  virtual void replica_joined(const ReplicaJoined& /*joined*/) {}
  virtual void stopping(bool /*now*/) {}
  virtual void ended(const Outcome& /*outcome*/) {}
};

}  // namespace strait::control

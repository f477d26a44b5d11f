#pragma once

#include "framework/net/inbox.h"
#include "launcher/run/checkpoint_committer.h"
#include "launcher/run/coordinator_options.h"
#include "launcher/run/loss_history.h"
#include "launcher/run/membership.h"
#include "launcher/run/outcome.h"
#include "launcher/run/rejoin.h"
#include "launcher/run/run_observer.h"
#include "launcher/run/step_ledger.h"
#include "launcher/run/watchdog.h"
#include "launcher/run/workers.h"

namespace strait::run {

// The centre of the control plane: connects the workers, collects their reports, commits
// checkpoints, forwards stop requests. When a worker fails, it determines the root cause and ends
// all others within ten seconds.
//
// run() is one loop on one thread: messages, exits of processes, stop requests, watchdog. The parts
// own the state: Workers (links and processes), StepLedger and CheckpointCommitter (what is
// complete), Watchdog and BrokenPaths (stuck and disconnected processes), Membership and Rejoin
// (replicas), RootCause. This class holds the phase of the run and the order in which the parts are
// called.
class Coordinator {
 public:
  Coordinator(std::vector<WorkerHandle> handles, CoordinatorOptions options,
              std::vector<RunObserver*> observers);
  Coordinator(const Coordinator&) = delete;
  Coordinator& operator=(const Coordinator&) = delete;
  ~Coordinator() = default;  // leaves no process and no thread running

  // From the first Hello to the exit of the last process. Called once. Errors of workers are in the
  // outcome. Only broken invariants and errors of observers are thrown, after all processes have
  // ended.
  //
  // `stops` counts the user's requests, from signal handlers: 1: finish the step, save a checkpoint
  // and exit; 2: exit now.
  Outcome run(const std::atomic<int>& stops);

 private:
  // connecting: until every worker is Ready. leaving: every worker is done. aborting: the run
  // failed, Abort is sent.
  enum class Phase { connecting, training, leaving, aborting };

  void receive();
  void handle(const net::Arrival& arrival);
  void on(Worker& from, const net::LinkError& end);
  void on(Worker& from, const Hello& hello);
  void on(Worker& from, const Ready& ready);
  void on(Worker& from, const Progress& progress);
  void on(Worker& from, const StepDone& done);
  void on(Worker& from, const Evaluated& evaluated);
  void on(Worker& from, const ShardsWritten& shards);
  void on(Worker& from, const Event& event);
  void on(Worker& from, const LostReplica& lost);
  void on(Worker& from, const Ended& ended);
  void on(Worker& from, const InferenceAnswer& answer);
  // What the inference client asks without an answer.
  void poll_inference();
  // Forwards the inference client's requests to the first stage; ends the stages when it has
  // finished.
  void submit(const std::vector<InferenceRequest>& requests);

  // All processes have reported the step.
  void on_step(const StepLine& line);
  void on_checkpoint(CheckpointCommitter::Result result);
  // A waiting replica becomes a member at this checkpoint.
  void admit_from(CheckpointDecided& committed);

  void check_exits();
  void check_stops(int stops);
  void check_leaving_hosts();
  void stop_after_step();
  void check_watchdog();
  void check_done();
  void report_every_second();
  void end_on_request();
  void evict_on_request();
  bool ending() const { return phase_ == Phase::leaving || phase_ == Phase::aborting; }
  bool over() const;
  Outcome outcome() const;

  void fail(const Worker& worker, base::ExitCode code, const std::string& text, bool effect);
  // Cancels the rejoin, evicts the replica, or ends the run: whatever is the least that the finding
  // requires.
  void fail(const Finding& finding);
  void evict_replica(const Finding& finding);

  Workers workers_;
  const CoordinatorOptions options_;
  const RunObservers observers_;
  net::Inbox inbox_;  // of the links of workers_, by index
  StepLedger steps_;
  LossHistory losses_;
  Watchdog watchdog_;
  Membership membership_;
  std::set<std::uint32_t> joined_;  // replicas that joined since training began
  bool trained_ = false;
  CheckpointCommitter checkpoints_;
  MemoryLedger memory_;
  BrokenPaths broken_paths_;  // between members
  RootCause root_cause_;
  Phase phase_ = Phase::connecting;
  // While leaving or aborting: the deadline for the exit of the last process.
  std::chrono::steady_clock::time_point deadline_;
  std::chrono::steady_clock::time_point reported_;
  store::Step last_step_;
  std::optional<store::Step> last_evaluation_;
  bool answered_ = false;  // the inference client has finished
  // How many of the user's stop requests were handled.
  int stops_handled_ = 0;
  std::set<std::string> left_hosts_;
  // the run saves and ends, because it cannot continue without a host, or is to start otherwise
  std::optional<Finding> leaving_;
  Rejoin rejoin_;  // last: its destructor waits for start_replica, which uses the members above
};

}  // namespace strait::run

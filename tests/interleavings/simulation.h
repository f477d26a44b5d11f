#pragma once

#include <deque>

#include "framework/sync/membership.h"
#include "launcher/run/checkpoint_committer.h"
#include "launcher/run/membership.h"
#include "tests/interleavings/case.h"
#include "tests/interleavings/fibers.h"
#include "tests/interleavings/wire.h"

namespace strait::interleavings {

// What a process has trained, and by which replicas.
struct TrainedStep {
  std::int64_t step = 0;
  std::uint64_t contributions = 0;  // with methods that sum gradients: how often by each replica
  std::uint64_t model = 0;          // hash of the model's bits
  bool operator==(const TrainedStep&) const = default;
};

// The end of a replica that joins, and whose sender of the state is lost.
inline constexpr const char* kSenderLost = "the sender of the state was evicted";

class Simulation;
struct JoinPoint;

// A stage process: product code on fibers, and what the coordinator sends to it.
struct Process {
  net::ProcessName name;
  bool started = false;
  bool killed = false;
  bool doomed = false;  // it, or another process of its replica, has been killed or has failed
  bool finished = false;
  bool saving = false;
  std::string error;  // what it ended by; empty: it has trained all steps, or still does
  std::unique_ptr<sync::MembershipTracker> tracker;
  std::vector<SimulatedLink*> to_replicas;  // of its stage, by replica; null: none
  std::vector<SimulatedLink*> consensus;    // of first stages, likewise
  using Control = std::variant<run::Regroup, run::CheckpointDecided>;
  std::deque<Control> control;
  std::map<std::pair<store::Step, std::uint32_t>, run::CheckpointDecided> decided;
  char decided_changed = 0;  // fibers wait for its address
  std::vector<TrainedStep> trained;
  std::uint32_t epoch = 0;
};

// One step of the exploration.
struct Transition {
  enum class Kind { operation, control, coordinator };
  Kind kind = Kind::operation;
  int process = 0;
  int fiber = 0;  // of an operation
  Outcome outcome = Outcome::done;
  std::string text() const;
};

// All processes of a run and their coordinator, one message at a time.
class Simulation {
 public:
  explicit Simulation(const Case& settings);
  ~Simulation();

  // Transitions that have to be tried in this state: with `reduced` some only, so that every
  // outcome is still reached. Empty: nothing more happens.
  std::vector<Transition> choices();
  void perform(const Transition& transition);
  std::uint64_t state() const;
  // Of a state without choices: what is wrong, or nothing.
  std::string problem() const;
  // What each process has trained, and the checkpoints: equal for runs of the same outcome.
  std::string outcome() const;
  bool victim_was_killed() const { return killed_; }

 private:
  friend class Trainer;
  friend class SimulatedLink;
  using Report = std::variant<run::ShardsWritten, std::monostate>;  // monostate: its end

  Process& process(int index) const { return *processes_[static_cast<std::size_t>(index)]; }
  int index_of(net::ProcessName name) const;
  void start(int index, std::optional<JoinPoint> join);
  void connect_replica(std::uint32_t replica);
  std::pair<std::shared_ptr<Wire>, std::size_t> newest_wire(Wire::Use use, int mine, int other);
  void kill(int index);
  static void finish(Process& ended, const std::string& error);
  void doom(std::uint32_t replica);
  void after_run(int index);

  // Until the victim is to be killed: only what it waits for.
  void run_to_kill();
  bool advance(int index, std::size_t depth);
  bool advance_anything();

  std::vector<Transition> operations_of(const Fiber& fiber);
  std::vector<Transition> steps_of(int index);
  std::vector<Transition> coordinators() const;
  std::vector<Transition> reports_of_ended() const;
  std::vector<Transition> reduced_choices();
  std::vector<Transition> reduced_steps();
  bool may_fail(std::uint32_t replica) const;
  std::string compare(const Process& one, const TrainedStep& trained) const;
  Outcome operate(const Operation& operation);
  void deliver(int index);
  std::uint64_t& history(int process, int fiber);
  // A fiber has got a frame without having waited for it.
  void polled(const Wire& wire, const net::Frame& frame);

  // The coordinator.
  void saved(int index, const run::ShardsWritten& shards, std::uint64_t model);
  void handle_report(int from);
  void evict(std::uint32_t replica);
  void written(int from, const run::ShardsWritten& shards);
  void broadcast(const Process::Control& message);
  void check_committed(std::pair<store::Step, std::uint32_t> key);

  const Case case_;
  Fibers fibers_;
  std::vector<std::unique_ptr<Process>> processes_;
  std::vector<std::shared_ptr<Wire>> wires_;
  std::map<const Fiber*, Operation> operations_;
  std::map<std::pair<int, int>, std::uint64_t> histories_;
  int victims_operations_ = 0;
  bool killed_ = false;

  run::Membership membership_;
  run::CheckpointLedger ledger_;
  std::vector<std::deque<Report>> reports_;  // by process
  // So many processes had ended when another made the last step, and their reports were left.
  std::size_t postponed_ = 0;
  bool arrival_waits_ = false;
  bool joined_ = false;
  // Of the shards that were written: hash of the model by process.
  std::map<std::pair<store::Step, std::uint32_t>, std::map<int, std::uint64_t>> models_;
  std::set<std::pair<store::Step, std::uint32_t>> committed_;  // checkpoints, and their epochs
  std::string found_;                                          // what was wrong on the way
  std::uint64_t coordinator_history_ = 0;
};

}  // namespace strait::interleavings

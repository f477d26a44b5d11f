#pragma once

#include "framework/store/checkpoint.h"
#include "launcher/run/loss_history.h"
#include "launcher/run/watchdog.h"
#include "launcher/run/workers.h"

namespace strait::run {

// The decision about a checkpoint in memory.
struct MemoryDecision {
  store::Step step{};
  std::string place = {};    // a phrase: where it is; empty: it was given up
  std::string problem = {};  // a sentence for the user; empty: none
};

// Decides which checkpoints in memory the run keeps. Called on the coordinator's thread; must
// return at once.
class MemoryHolder {
 public:
  MemoryHolder() = default;
  MemoryHolder(const MemoryHolder&) = delete;
  MemoryHolder& operator=(const MemoryHolder&) = delete;
  virtual ~MemoryHolder() = default;

  // The shards of all processes, in their order. The previous checkpoint has been decided.
  virtual void hold(store::Step step, std::vector<store::ShardFile> files) = 0;
  // Decisions since the last call.
  virtual std::vector<MemoryDecision> take_decisions() = 0;
};

// The started processes of a replica that is to rejoin.
struct StartedReplica {
  std::vector<WorkerHandle> workers;
  // For each process of the other replicas: the links to this replica that it must bind, with their
  // addresses.
  std::map<net::ProcessName, std::map<std::string, std::string>> binds = {};
  // Notes for the user about the replica's hosts.
  std::vector<Event> notes = {};
};

struct CoordinatorOptions {
  // Updates made before this launch.
  store::Step from{};
  // Updates of the whole run.
  store::Step to{};
  // The build that every process must report.
  std::string build;
  WatchdogLimits limits;
  // How long from Abort to kill.
  std::chrono::milliseconds abort_timeout{4'000};
  // How long from the last Done to the exit of the last process.
  std::chrono::milliseconds exit_timeout{30'000};
  // How long the present workers may take to bind their links to a replica that rejoins.
  std::chrono::milliseconds admit_timeout{60'000};
  // Whether the run's directory is still in place; called every second.
  std::function<bool()> directory_in_place = [] { return true; };
  // Returns the replicas that were requested to leave since the last call; called every second.
  // Absent: never.
  std::function<std::vector<std::uint32_t>()> leave_requests;
  // The same for replicas that were requested to rejoin.
  std::function<std::vector<std::uint32_t>()> rejoin_requests;
  // Why the run is to save and end, to start again otherwise: a sentence; empty: it goes on. Called
  // every second of training. Absent: never.
  std::function<std::string()> end_requests;
  // Starts the processes of an absent replica, whose former links are already closed. Runs on its
  // own thread, because it may take minutes; never twice at a time. Ends soon after `given_up`
  // becomes true, when the run does not need the replica any more. UserError: why it failed.
  std::function<StartedReplica(std::uint32_t, const std::atomic<bool>& given_up)> start_replica;
  // The run continues when a replica is lost and another one remains.
  bool survives_lost_replicas = false;
  // The losses of the weights that this launch starts with.
  LossHistory losses{};
  // The stages end the run by it; here it only says why they have.
  trace::EarlyStop::Rule stop_when{};
  // Called when training begins and after every loss, before the next prune(). May be absent.
  std::function<void(const LossHistory&)> on_loss;
  // How many checkpoints in a row may fail: with this one the run ends.
  int missed_checkpoints = 3;
  // Translates endpoints as bound into endpoints to connect to (relays, tunnels). Absent:
  // unchanged.
  std::function<Endpoints(Endpoints)> locate_endpoints;
  // Called once, when all processes are up and have loaded, and before any trains. Makes the
  // changes to the run's files that a failed start must not leave. Any exception ends the run.
  // Absent: no changes.
  std::function<void()> apply_changes;
  // Queries the trained model instead of training it; outlives the run. Null: the run trains.
  InferenceClient* inference = nullptr;
  // Holds checkpoints in memory; outlives the run. Null: there are none.
  MemoryHolder* memory = nullptr;
  // Completes the checkpoint by writing the manifest over the shards of all processes.
  // store::StoreError: the checkpoint is dropped and training continues.
  std::function<void(store::Step, const std::vector<store::ShardFile>&)> commit;
  // Removes what newer checkpoints replace. Called when training begins and after each commit. What
  // could not be removed becomes a warning, and changes nothing else. Absent: nothing is removed.
  std::function<store::Pruned(store::PruneTime)> prune;
};

}  // namespace strait::run

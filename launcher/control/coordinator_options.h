#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "framework/store/checkpoint.h"
#include "launcher/control/loss_history.h"
#include "launcher/control/watchdog.h"
#include "launcher/control/workers.h"

namespace strait::control {

// The shards of one process of a checkpoint in memory.
struct MemoryPart {
  net::ProcessName process;
  std::int64_t pid = 0;
  std::vector<MemoryShard> shards;
};

// What became of one.
struct MemoryDecision {
  store::Step step{};
  std::string place = {};    // a phrase: where it is; empty: it was given up
  std::string problem = {};  // a sentence for the user; empty: none
};

// Holds the newest checkpoint in memory for the run, outside of the processes that made it. Called
// on the coordinator's thread; must return at once.
class MemoryHolder {
 public:
  MemoryHolder() = default;
  MemoryHolder(const MemoryHolder&) = delete;
  MemoryHolder& operator=(const MemoryHolder&) = delete;
  virtual ~MemoryHolder() = default;

  // The parts of all processes. The former one has been decided.
  virtual void hold(store::Step step, std::vector<MemoryPart> parts) = 0;
  // Decided since the last call: the processes can free their copies.
  virtual std::vector<MemoryDecision> take_decisions() = 0;
};

// The started processes of a replica that is to rejoin.
struct StartedReplica {
  std::vector<WorkerHandle> workers;
  // For each process of the other replicas: the links that it has to bind for this one, with the
  // address of each.
  std::map<net::ProcessName, std::map<std::string, std::string>> binds = {};
  // Remarks for the user about the replica's hosts.
  std::vector<Event> notes = {};
};

struct CoordinatorOptions {
  // Updates already made when this launch begins.
  store::Step from{};
  // Updates to make in all.
  store::Step to{};
  // The build that every process must report.
  std::string build;
  WatchdogLimits limits;
  // From Abort to kill.
  std::chrono::milliseconds abort_timeout{4'000};
  // From the last Done to the exit of the last process.
  std::chrono::milliseconds exit_timeout{30'000};
  // For the present workers to bind their links to a replica that rejoins.
  std::chrono::milliseconds admit_timeout{60'000};
  // Whether the run's directory is still where it was; called every second.
  std::function<bool()> directory_in_place = [] { return true; };
  // Returns the replicas that were requested to leave since the last call; called every second.
  // Absent: none ever is.
  std::function<std::vector<std::uint32_t>()> leave_requests;
  // Likewise those that were requested to rejoin.
  std::function<std::vector<std::uint32_t>()> rejoin_requests;
  // Starts the processes of an absent replica; their former links are closed by then. Runs on a
  // thread of its own because it may take minutes; never twice at a time. Ends soon once `given_up`
  // is true: the run does not need the replica any more. UserError: why it failed.
  std::function<StartedReplica(std::uint32_t, const std::atomic<bool>& given_up)> start_replica;
  // The run continues when a replica is lost and another one remains.
  bool survives_lost_replicas = false;
  // Of the weights that this launch begins with.
  LossHistory losses{};
  // Called as training begins and after every loss, before the next prune(). May be absent.
  std::function<void(const LossHistory&)> on_loss;
  // Checkpoints that may fail in a row; with this one the run ends.
  int missed_checkpoints = 3;
  // Translates endpoints as bound into endpoints to connect to (relays, tunnels). Absent: the same.
  std::function<Endpoints(Endpoints)> locate_endpoints;
  // Called once, when all processes are up and have loaded and none trains yet: makes the changes
  // to the run's files that a start which fails must not leave behind. Any exception ends the run.
  // Absent: there are none.
  std::function<void()> apply_changes;
  // Asks the trained model instead of training it; outlives the run. Null: the run trains.
  InferenceClient* inference = nullptr;
  // Of checkpoints in memory; outlives the run. Null: there are none.
  MemoryHolder* memory = nullptr;
  // Completes the checkpoint by writing the manifest over the shards of all processes.
  // store::StoreError: the checkpoint is dropped and training continues.
  std::function<void(store::Step, const std::vector<store::ShardFile>&)> commit;
  // Removes what newer checkpoints replace; called when training begins and after each commit. What
  // could not be removed becomes a warning and changes nothing else. Absent: nothing is removed.
  std::function<store::Pruned(store::PruneTime)> prune;
};

}  // namespace strait::control

#pragma once

#include "framework/store/checkpoint.h"
#include "launcher/run/control_message.h"
#include "launcher/run/coordinator_options.h"
#include "launcher/run/membership.h"
#include "launcher/run/outcome.h"
#include "launcher/run/run_observer.h"

namespace strait::run {

// Collects, for each checkpoint, the processes that have written their shards. Pure. One failed
// process fails the whole checkpoint: shards that arrive later do not complete it. When a replica
// leaves, the remaining ones write the checkpoint again in the new epoch.
class CheckpointLedger {
 public:
  explicit CheckpointLedger(std::size_t processes) : processes_(processes) {}

  // All files, in the order of the processes, if this report completes the checkpoint.
  // MessageError: the process has reported it before.
  std::optional<std::vector<store::ShardFile>> written(net::ProcessName process,
                                                       const ShardsWritten& shards);
  // Marks the checkpoint as failed; true the first time in this epoch.
  bool failed(store::Step step, std::uint32_t epoch);
  // A new epoch with this many writing processes. Returns the checkpoints in progress, which must
  // be written again.
  std::vector<store::Step> regroup(std::uint32_t epoch, std::size_t processes);
  // True once per checkpoint that was written in a former epoch: it must be written again.
  bool outdated(store::Step step, std::uint32_t epoch);

 private:
  std::size_t processes_;
  std::uint32_t epoch_ = 0;
  std::map<store::Step, std::map<net::ProcessName, std::vector<store::ShardFile>>> open_;
  std::set<std::pair<store::Step, std::uint32_t>> lost_;
};

// Turns the workers' shards into checkpoints: commits a checkpoint when all members have written
// their part, drops it when a part failed, and withdraws what was written in a former epoch. Counts
// failures in a row. One thread (the coordinator's).
class CheckpointCommitter {
 public:
  CheckpointCommitter(Workers& workers, const Membership& membership, const RunObservers& observers,
                      const CoordinatorOptions& options)
      : workers_(workers),
        membership_(membership),
        observers_(observers),
        options_(options),
        ledger_(workers.present().size()) {}

  // Before training: options.apply_changes, which sets the run back to the checkpoint that it
  // starts from.
  std::optional<Finding> apply_changes() const;

  // At most one of both. `committed` must still be broadcast: the caller first adds a replica that
  // becomes a member here.
  struct Result {
    std::optional<CheckpointDecided> committed = {};
    bool dropped = false;
  };
  // A process has written its part, or failed to. `aborting`: parts are counted, but nothing is
  // committed any more.
  Result add(const Worker& from, const ShardsWritten& shards, bool aborting);

  // Removes what newer checkpoints replace. Called after the decision was sent, so training does
  // not wait. One event per folder that cannot be removed.
  void prune(store::PruneTime time);

  // After a replica left: withdraws unfinished checkpoints of `former` and requests them again.
  void on_replica_left(std::uint32_t former);
  void on_replica_joined();

  // The last checkpoint committed in this launch.
  std::optional<store::Step> last() const { return last_; }
  // The latest failure; empty after a success.
  const std::optional<Finding>& last_drop() const { return last_drop_; }
  // More failures in a row than options.missed_checkpoints allows: the run must end.
  std::optional<Finding> too_many_missed() const;

 private:
  // False: written in a former epoch. The first time per checkpoint, requests it again.
  bool is_current(store::Step step, std::uint32_t epoch);
  void request_again(store::Step step, std::uint32_t epoch);
  Result commit(store::Step step, const std::vector<store::ShardFile>& files);
  // The number of workers that write parts of a checkpoint.
  std::size_t members() const;
  Result drop(store::Step step, const Finding& why);

  Workers& workers_;
  const Membership& membership_;
  const RunObservers& observers_;
  const CoordinatorOptions& options_;
  // Of the current epoch.
  CheckpointLedger ledger_;
  std::optional<store::Step> last_;
  std::optional<Finding> last_drop_;
  int missed_ = 0;
  // Folders that could not be removed and were already reported.
  std::set<std::filesystem::path> not_pruned_;
};

// Which processes have made their part of which checkpoint in memory. A checkpoint is handed to the
// holder when all parts exist, and dropped if a process skipped its part. In both cases every
// process gets a message, at a time when none is writing it. One thread (the coordinator's).
class MemoryLedger {
 public:
  MemoryLedger(Workers& workers, const RunObservers& observers, MemoryHolder* holder)
      : workers_(workers), observers_(observers), holder_(holder) {}

  // base::MessageError: the process has reported it before.
  void add(const Worker& from, const ShardsWritten& shards);
  // Passes on what was decided, to the processes and the observers. `quiet`: the processes are
  // exiting, so a failed copy is not a problem.
  void poll(bool quiet);

 private:
  struct Open {
    // In the order of a checkpoint on disk: if several processes hold a tensor, the first counts.
    std::map<net::ProcessName, std::vector<store::ShardFile>> parts;
    bool skipped = false;
    std::string problem;
  };
  void decide(const MemoryDecision& decision, bool quiet);

  Workers& workers_;
  const RunObservers& observers_;
  MemoryHolder* holder_;
  std::map<store::Step, Open> open_;
  std::string problem_;   // the last one reported; repetitions are not
  bool failing_ = false;  // a process could not write the last one
};

}  // namespace strait::run

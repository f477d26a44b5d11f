#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "framework/store/checkpoint.h"
#include "launcher/control/control_message.h"
#include "launcher/control/coordinator_options.h"
#include "launcher/control/membership.h"
#include "launcher/control/outcome.h"

namespace strait::control {

// Which processes have written their shards of which checkpoint. Pure. One failed process fails the
// whole checkpoint: shards that arrive later do not complete it. When a replica leaves, the
// remaining ones write it again in the new epoch.
class CheckpointLedger {
 public:
  explicit CheckpointLedger(std::size_t processes) : processes_(processes) {}

  // All files, in the order of the processes, when this report completes the checkpoint.
  // MessageError: the process has reported it before.
  std::optional<std::vector<store::ShardFile>> written(net::ProcessName process,
                                                       const ShardsWritten& shards);
  // Marks the checkpoint as failed; true the first time in this epoch.
  bool failed(store::Step step, std::uint32_t epoch);
  // A new epoch with so many writing processes. Returns the checkpoints that were in progress; they
  // have to be written again.
  std::vector<store::Step> regroup(std::uint32_t epoch, std::size_t processes);
  // True once for each checkpoint that was written in a former epoch: it has to be written again.
  bool outdated(store::Step step, std::uint32_t epoch);

 private:
  std::size_t processes_;
  std::uint32_t epoch_ = 0;
  std::map<store::Step, std::map<net::ProcessName, std::vector<store::ShardFile>>> open_;
  std::set<std::pair<store::Step, std::uint32_t>> lost_;
};

// Turns the workers' shards into checkpoints: commits one when all members have written their part,
// drops it when a part failed, and withdraws what was written in a former epoch. Counts failures in
// a row. One thread (the coordinator's).
class CheckpointCommitter {
 public:
  CheckpointCommitter(Workers& workers, const Membership& membership, const RunObservers& observers,
                      const CoordinatorOptions& options)
      : workers_(workers),
        membership_(membership),
        observers_(observers),
        options_(options),
        ledger_(workers.present().size()) {}

  // Before training: options.apply_changes, which returns to the checkpoint that it begins at.
  std::optional<Finding> apply_changes() const;

  // At most one of both. `committed` still has to be broadcast: the caller adds a replica that is a
  // member from here on.
  struct Result {
    std::optional<Committed> committed = {};
    bool dropped = false;
  };
  // `aborting`: parts are counted, but nothing is committed any more.
  Result written(const Worker& from, const ShardsWritten& shards, bool aborting);
  Result failed(const Worker& from, const ShardFailed& failed);

  // Removes what newer checkpoints replace. After Committed was sent: training does not wait for
  // it. An event for each folder that cannot be removed, once.
  void prune(store::PruneTime time);

  // After a replica left: withdraws unfinished checkpoints of `former` and has them made again.
  void on_replica_left(std::uint32_t former);
  void on_replica_joined();

  // The last checkpoint of this launch.
  std::optional<store::Step> last() const { return last_; }
  // The latest failure; none since a checkpoint succeeded.
  const std::optional<Finding>& last_drop() const { return last_drop_; }
  // More failures in a row than options.missed_checkpoints allows: the run has to end.
  std::optional<Finding> too_many_missed() const;

 private:
  // False: written in a former epoch. The first time for each checkpoint, requests it again.
  bool is_current(store::Step step, std::uint32_t epoch);
  Result commit(store::Step step, const std::vector<store::ShardFile>& files);
  // Workers that write parts of a checkpoint.
  std::size_t members() const;
  Result drop(store::Step step, const Finding& why);

  Workers& workers_;
  const Membership& membership_;
  const RunObservers& observers_;
  const CoordinatorOptions& options_;
  // Of the present epoch.
  CheckpointLedger ledger_;
  std::optional<store::Step> last_;
  std::optional<Finding> last_drop_;
  int missed_ = 0;
  // Folders that could not be removed and were reported.
  std::set<std::filesystem::path> not_pruned_;
};

}  // namespace strait::control

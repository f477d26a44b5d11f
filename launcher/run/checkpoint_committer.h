#pragma once

#include <filesystem>
#include <optional>
#include <set>
#include <vector>

#include "framework/store/checkpoint.h"
#include "launcher/run/checkpoint_ledger.h"
#include "launcher/run/control_message.h"
#include "launcher/run/coordinator_options.h"
#include "launcher/run/membership.h"
#include "launcher/run/root_cause.h"

namespace strait::run {

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
    std::optional<Committed> committed = {};
    bool dropped = false;
  };
  // `aborting`: parts are counted, but nothing is committed any more.
  Result written(const Worker& from, const ShardsWritten& shards, bool aborting);
  Result failed(const Worker& from, const ShardFailed& failed);

  // Removes what newer checkpoints replace. Called after Committed was sent, so that training does
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

}  // namespace strait::run

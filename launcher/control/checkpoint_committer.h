#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "launcher/control/control_message.h"
#include "launcher/control/coordinator_options.h"
#include "launcher/control/membership.h"
#include "launcher/control/outcome.h"

namespace strait::control {

// Which parts of which checkpoint are written. Pure. A checkpoint of which one part failed is lost
// as a whole: parts that come later do not bring it back. Where a process leaves, those who are
// left write it once more, in their epoch.
class CheckpointLedger {
 public:
  explicit CheckpointLedger(std::size_t processes) : processes_(processes) {}

  // All files, in the order of the processes, when this was the last part. A part that comes twice
  // is a MessageError.
  std::optional<std::vector<store::ShardFile>> written(net::ProcessName process,
                                                       const ShardsWritten& shards);
  // True the first time in this epoch: the checkpoint is lost from now on.
  bool failed(store::Step step, std::uint32_t epoch);
  // From now on so many processes write, in this epoch; the checkpoints that were under way, or
  // that come from before, are to be made again.
  std::vector<store::Step> regroup(std::uint32_t epoch, std::size_t processes);
  // Whether this is from before, so that whoever wrote it has to be told to make it again: true
  // once for each checkpoint.
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

  // At most one of both. `committed` still has to be broadcast: the caller adds a replica that
  // takes part from here on.
  struct Result {
    std::optional<Committed> committed = {};
    bool dropped = false;
  };
  // `aborting`: parts are counted, but nothing is committed any more.
  Result written(const Worker& from, const ShardsWritten& shards, bool aborting);
  Result failed(const Worker& from, const ShardFailed& failed);

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
  // Whether the present members wrote that; if not, they are told once to write it again.
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
};

}  // namespace strait::control

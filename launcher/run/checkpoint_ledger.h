#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "framework/store/checkpoint.h"
#include "launcher/run/control_message.h"

namespace strait::run {

// Which processes have written their shards of which checkpoint. Pure. One failed process fails the
// whole checkpoint: shards that arrive later do not complete it. When a replica leaves, the
// remaining ones write the checkpoint again in the new epoch.
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

}  // namespace strait::run

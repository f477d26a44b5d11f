#pragma once

#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "launcher/control/control_message.h"

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

}  // namespace strait::control

#pragma once

#include <map>
#include <optional>
#include <set>
#include <vector>

#include "launcher/control/control_message.h"

namespace strait::launcher {

// Which parts of which checkpoint are written. Pure. A checkpoint of which one part failed is lost
// as a whole: parts that come later do not bring it back.
class CheckpointLedger {
 public:
  explicit CheckpointLedger(std::size_t processes) : processes_(processes) {}

  // All files, in the order of the processes, when this was the last part. A part that comes twice
  // is a ControlError.
  std::optional<std::vector<store::ShardFile>> written(net::ProcessName process,
                                                       const ShardsWritten& shards);
  // True the first time: the checkpoint is lost from now on.
  bool failed(store::Step step);

 private:
  std::size_t processes_;
  std::map<store::Step, std::map<net::ProcessName, std::vector<store::ShardFile>>> open_;
  std::set<store::Step> lost_;
};

}  // namespace strait::launcher

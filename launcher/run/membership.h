#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include "launcher/run/control_message.h"
#include "launcher/run/root_cause.h"

namespace strait::run {

// Which replicas are members of the run. The epoch counts the changes. Pure.
class Membership {
 public:
  // `survives_loss`: the run continues when a replica is lost.
  Membership(const std::vector<net::ProcessName>& processes, bool survives_loss);

  bool has(std::uint32_t replica) const { return members_.contains(replica); }
  // Whether the run continues after this finding: a process was lost and other replicas remain. An
  // error that every replica would meet (a bad recipe, a full disk) ends the run.
  bool survives(const Finding& finding) const;
  void leave(std::uint32_t replica);
  void join(std::uint32_t replica);

  std::uint32_t epoch() const { return epoch_; }
  // Announces the current membership to the workers.
  Regroup regroup() const { return {epoch_, {members_.begin(), members_.end()}}; }

 private:
  std::set<std::uint32_t> members_;
  std::uint32_t epoch_ = 0;
  bool survives_loss_;
};

}  // namespace strait::run

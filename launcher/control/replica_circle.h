#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "launcher/control/control_message.h"
#include "launcher/control/first_cause.h"

namespace strait::control {

// Which replicas of a run take part, and whether the others can go on without one. Pure.
class ReplicaCircle {
 public:
  // `outlives`: the run is to go on when a replica is lost.
  ReplicaCircle(const std::vector<net::ProcessName>& processes, bool outlives);

  bool has(std::uint32_t replica) const { return members_.contains(replica); }
  // Whether this is the loss of a process, after which the others are as well as before; a mistake
  // that any of them would make likewise, or did, is none.
  bool outlives(const Finding& finding) const;
  void leave(std::uint32_t replica);
  void join(std::uint32_t replica);

  std::uint32_t epoch() const { return epoch_; }
  // What to tell those who take part.
  Regroup regroup() const { return {epoch_, {members_.begin(), members_.end()}}; }

 private:
  std::set<std::uint32_t> members_;
  std::uint32_t epoch_ = 0;
  bool outlives_;
};

}  // namespace strait::control

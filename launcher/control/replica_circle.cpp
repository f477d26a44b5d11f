#include "launcher/control/replica_circle.h"

namespace strait::control {

ReplicaCircle::ReplicaCircle(const std::vector<net::ProcessName>& processes, bool outlives)
    : outlives_(outlives) {
  for (const net::ProcessName& process : processes) members_.insert(process.replica);
}

bool ReplicaCircle::outlives(const Finding& finding) const {
  const bool lost = finding.code == base::ExitCode::peer_lost || finding.code == base::ExitCode::stalled ||
                    finding.code == base::ExitCode::out_of_memory;
  return outlives_ && lost && members_.size() > 1 && finding.process &&
         has(finding.process->replica);
}

void ReplicaCircle::leave(std::uint32_t replica) {
  if (members_.erase(replica) > 0) ++epoch_;
}

void ReplicaCircle::join(std::uint32_t replica) {
  if (members_.insert(replica).second) ++epoch_;
}

}  // namespace strait::control

#include "launcher/run/membership.h"

namespace strait::run {

Membership::Membership(const std::vector<net::ProcessName>& processes, bool survives_loss)
    : survives_loss_(survives_loss) {
  for (const net::ProcessName& process : processes) members_.insert(process.replica);
}

bool Membership::survives(const Finding& finding) const {
  // Only these codes depend on one process or host; any other error would hit every replica.
  const bool lost = finding.code == base::ExitCode::peer_lost ||
                    finding.code == base::ExitCode::stalled ||
                    finding.code == base::ExitCode::out_of_memory;
  return survives_loss_ && lost && members_.size() > 1 && finding.process &&
         has(finding.process->replica);
}

void Membership::leave(std::uint32_t replica) {
  if (members_.erase(replica) > 0) ++epoch_;
}

void Membership::join(std::uint32_t replica) {
  if (members_.insert(replica).second) ++epoch_;
}

}  // namespace strait::run

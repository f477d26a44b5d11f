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

void BrokenPaths::add(std::uint32_t from, std::uint32_t to, const std::string& report, Time now) {
  if (reports_.emplace(std::pair(from, to), report).second) latest_ = now;
}

void BrokenPaths::leave(std::uint32_t replica) {
  std::erase_if(reports_, [&](const auto& one) {
    return one.first.first == replica || one.first.second == replica;
  });
}

// A path counts as broken for both of its ends, even if only one has reported it: the other may not
// have used it yet. The replica with the most broken paths is evicted, so that as many replicas as
// possible remain. On a tie it is the highest number. This is deterministic, and if two sites with
// several replicas each are disconnected, the replicas of one site are evicted one by one, instead
// of some of both.
std::optional<BrokenPaths::BrokenReplica> BrokenPaths::judge(Time now) const {
  if (reports_.empty() || now - latest_ < kQuietTime) return std::nullopt;
  std::map<std::uint32_t, std::set<std::uint32_t>> broken;
  for (const auto& [path, report] : reports_) {
    broken[path.first].insert(path.second);
    broken[path.second].insert(path.first);
  }
  std::uint32_t worst = 0;
  std::size_t most = 0;
  for (const auto& [replica, others] : broken) {
    if (others.size() < most) continue;
    worst = replica;
    most = others.size();
  }
  BrokenReplica broken_replica{worst, {}};
  // A report about the replica explains more than one by it, which only shows the symptom.
  for (const auto& [path, report] : reports_) {
    if (path.second == worst) return BrokenReplica{worst, report};
    if (path.first == worst) broken_replica.report = report;
  }
  return broken_replica;
}

}  // namespace strait::run

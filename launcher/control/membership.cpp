#include "launcher/control/membership.h"

#include <set>

namespace strait::control {

Membership::Membership(const std::vector<net::ProcessName>& processes, bool survives_loss)
    : survives_loss_(survives_loss) {
  for (const net::ProcessName& process : processes) members_.insert(process.replica);
}

bool Membership::survives(const Finding& finding) const {
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

void BrokenPaths::add(std::uint32_t from, std::uint32_t to, const std::string& words, Time now) {
  if (said_.emplace(std::pair(from, to), words).second) latest_ = now;
}

void BrokenPaths::leave(std::uint32_t replica) {
  std::erase_if(said_, [&](const auto& one) {
    return one.first.first == replica || one.first.second == replica;
  });
}

// A path is broken for both of its ends, whichever of them says so first or at all: who is cut off
// says it of others who have not yet looked. So the one with the most broken paths leaves, and the
// others keep as many among themselves as they can. Where that is a tie nothing that we know makes
// one better than the other. Then the highest number leaves: that goes the same way every time, and
// where two sites of several replicas lose each other it takes those of one site, one by one,
// instead of some of both.
std::optional<BrokenPaths::BrokenReplica> BrokenPaths::judge(Time now) const {
  if (said_.empty() || now - latest_ < kSeeForOurselves) return std::nullopt;
  std::map<std::uint32_t, std::set<std::uint32_t>> broken;
  for (const auto& [path, words] : said_) {
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
  for (const auto& [path, words] : said_) {
    if (path.second == worst) return BrokenReplica{worst, words};
    if (path.first == worst) broken_replica.words = words;
  }
  return broken_replica;
}

}  // namespace strait::control

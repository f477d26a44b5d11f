#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "launcher/control/control_message.h"
#include "launcher/control/outcome.h"

namespace strait::control {

// Which replicas take part in the run. The epoch counts the changes. Pure.
class Membership {
 public:
  // `survives_loss`: the run continues when a replica is lost.
  Membership(const std::vector<net::ProcessName>& processes, bool survives_loss);

  bool has(std::uint32_t replica) const { return members_.contains(replica); }
  // Whether the run continues after this finding: a process was lost and other replicas remain. An
  // error that every replica would run into likewise (a bad recipe, a full disk) ends the run.
  bool survives(const Finding& finding) const;
  void leave(std::uint32_t replica);
  void join(std::uint32_t replica);

  std::uint32_t epoch() const { return epoch_; }
  // Announces the present membership to the workers.
  Regroup regroup() const { return {epoch_, {members_.begin(), members_.end()}}; }

 private:
  std::set<std::uint32_t> members_;
  std::uint32_t epoch_ = 0;
  bool survives_loss_;
};

// Between which replicas there is no way any more, as these say themselves, and which one leaves
// because of that. Pure. Only for replicas that still speak to us: whoever has ended or fallen
// silent is found by that, and sooner.
class BrokenPaths {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // How long nothing new must have been said: links that break together die within a second or so
  // of each other, and the end of a process, if it has come to that, is seen meanwhile.
  static constexpr std::chrono::seconds kSeeForOurselves{2};

  // A process of replica `from` cannot reach replica `to`. Any of its processes may say so, and
  // repeat it.
  void add(std::uint32_t from, std::uint32_t to, const std::string& words, Time now);

  // That replica takes no part any more: neither its word counts, nor what was said of it.
  void leave(std::uint32_t replica);

  struct BrokenReplica {
    std::uint32_t replica = 0;
    std::string words;  // what was said
  };
  std::optional<BrokenReplica> judge(Time now) const;

 private:
  // The first words of one replica about another one.
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::string> said_;
  Time latest_;
};

}  // namespace strait::control

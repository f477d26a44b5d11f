#pragma once

#include "launcher/run/control_message.h"
#include "launcher/run/outcome.h"

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

// Pairs of replicas that report broken links between them, and the replica that is evicted because
// of them. Pure. Only for replicas with working control links: the exit or the watchdog shows a
// process that ended or fell silent sooner.
class BrokenPaths {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // The time without new reports before judge() decides. Links that break together fail within
  // about a second of each other, and the exit of a process is noticed meanwhile.
  static constexpr std::chrono::seconds kQuietTime{2};

  // A process of replica `from` cannot reach replica `to`. Several processes may report the same
  // path, repeatedly.
  void add(std::uint32_t from, std::uint32_t to, const std::string& report, Time now);

  // The replica is no longer a member: discards its reports and those about it.
  void leave(std::uint32_t replica);

  struct BrokenReplica {
    std::uint32_t replica = 0;
    std::string report;
  };
  std::optional<BrokenReplica> judge(Time now) const;

 private:
  // The first report of each (from, to).
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::string> reports_;
  Time latest_;
};

}  // namespace strait::run

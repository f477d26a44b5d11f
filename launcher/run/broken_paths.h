#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>

namespace strait::run {

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

#include "launcher/run/slow_steps.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

namespace strait::run {
namespace {

constexpr double kSlowStep = 10;          // times the median
constexpr double kLeastNamed = 1;         // of a named step, in seconds; shorter ones do not matter
constexpr std::int64_t kFewestSteps = 8;  // the median of fewer steps says little

// Processor time of all programs on a host, and of the run's own processes, in cores.
struct Use {
  double all = 0;
  double own = 0;
  double others() const { return std::max(all - own, 0.0); }
};

}  // namespace

// The host that other programs use most. All processes of a host see the same programs, but each in
// its own step, so the largest value counts.
std::string SlowSteps::load(const StepLine& line) const {
  std::map<std::string, Use> hosts;
  std::map<std::string, std::int64_t> cores;
  for (const auto& [process, metrics] : line.processes) {
    const auto host = hosts_.find(process);
    if (host == hosts_.end() || !metrics.host_cores) continue;
    Use& use = hosts[host->second.name];
    use.all = std::max(use.all, *metrics.host_cores);
    use.own += metrics.own_cores;
    cores[host->second.name] = host->second.cores;
  }
  if (hosts.empty()) return "";
  const auto most =
      std::ranges::max_element(hosts, {}, [](const auto& one) { return one.second.others(); });
  const std::int64_t of = cores.at(most->first);
  return fmt::format("; other programs kept {:.1f}{} cores of host {} busy", most->second.others(),
                     of == 0 ? "" : fmt::format(" of the {}", of), most->first);
}

std::string SlowSteps::add(const StepLine& line) {
  const double seconds = std::max(line.seconds - line.checkpoint_seconds, 0.0);
  const double usual = seconds_.median();
  const bool was_slow = slow_;
  slow_ = steps_ >= kFewestSteps && seconds >= kLeastNamed && seconds >= kSlowStep * usual;
  ++steps_;
  seconds_.add(seconds);
  if (!slow_ || was_slow) return "";
  return fmt::format("step {} took {:.2g} s, {:.2g} times the median of {:.2g} s{}",
                     number(line.step), seconds, seconds / usual, usual, load(line));
}

}  // namespace strait::run

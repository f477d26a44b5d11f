#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "launcher/control/step_ledger.h"

namespace strait::control {

// What the plan expects of a run's parts. What is absent is compared with its neighbours only.
struct ExpectedSpeeds {
  struct Link {
    double bytes_per_second = 0;  // 0: not known
    double waiting = 0;           // seconds of a step that its messages are in flight at any rate
    // Hosts whose uplink and downlink it shares with other links; empty: it has lines of its own.
    std::string from = {};
    std::string to = {};
  };
  struct Process {
    double compute_seconds = 0;  // of a step; only ratios count, but for a measured host
    bool measured = false;
    std::string host;
  };
  std::map<std::pair<std::string, net::ProcessName>, Link> links;  // by name and sender
  std::map<net::ProcessName, Process> processes;
};

// Names links and processes that take at least twice as long as the plan says, or as their
// neighbours: of a link whose speed the plan does not know those that carry the like in the same
// direction, of a process the other replicas of its stage and, by the shares of the plan, the
// slowest other process. Only where that costs a good part of the step, and not before it has
// lasted. What was named stays so until it is well below that. A link that shares a line is judged
// by all that the line may have carried meanwhile. Pure: no clock, no file.
class SlowParts {
 public:
  explicit SlowParts(ExpectedSpeeds expected) : expected_(std::move(expected)) {}

  struct Change {
    bool slow = false;     // false: no longer
    std::string sentence;  // which part, how fast, and compared with what
  };
  // The parts that this step decides about.
  std::vector<Change> add(const StepLine& line);
  std::vector<std::string> sentences() const;  // of all that are slow now

  // A decision is about so many of the latest steps; of a process about more, where they are
  // shorter than this together: a host with other work for a moment is no slow host.
  static constexpr std::size_t kWindow = 8;
  static constexpr double kProcessSeconds = 4;

 private:
  struct Step {
    bool slow = false;
    double seconds = 0;
  };
  struct Part {
    double least_seconds = 0;
    std::deque<Step> recent;
    std::deque<double> rates = {};  // of a link, in the latest kWindow steps
    bool slow = false;
    std::string sentence;
  };
  using LinkOf = std::pair<std::string, net::ProcessName>;

  void note_rates(const StepLine& line);
  double line_bytes(const StepLine& line, const StepLine::LinkBytes& one) const;
  double usual_rate(const StepLine& line, const StepLine::LinkBytes& one) const;
  // Judges this step. A sentence; empty: not slow.
  std::string judge_link(const StepLine& line, const StepLine::LinkBytes& one, bool slow) const;
  std::string judge_process(const StepLine& line, const net::ProcessName& process,
                            double busy) const;
  void note(Part& part, double seconds, std::string sentence, const std::string& name,
            std::vector<Change>& changes) const;

  const ExpectedSpeeds expected_;
  std::map<LinkOf, Part> links_;
  std::map<net::ProcessName, Part> processes_;
  std::int64_t steps_ = 0;
};

}  // namespace strait::control

#pragma once

#include "launcher/recipe/plan.h"
#include "launcher/run/forecast_check.h"
#include "launcher/run/model_questions.h"
#include "launcher/run/run_observer.h"
#include "launcher/run/step_ledger.h"

namespace strait::run {

// What the plan expects of a run's parts. Missing parts are only compared with each other.
struct ExpectedSpeeds {
  struct Link {
    double bytes_per_second = 0;  // 0: unknown
    double waiting = 0;  // seconds of a step in which its messages are in flight at any speed
    // Hosts whose uplink and downlink it shares with other links; empty: it shares none.
    std::string from = {};
    std::string to = {};
  };
  struct Process {
    double compute_seconds = 0;  // of a step; only ratios count, except for a measured host
    bool measured = false;
    std::string host;
  };
  std::map<std::pair<std::string, net::ProcessName>, Link> links;  // by name and sender
  std::map<net::ProcessName, Process> processes;
};

// Names links and processes that take at least twice as long as the plan says, or as comparable
// parts. A link of unknown speed is compared with similar links in the same direction. A process is
// compared with the other replicas of its stage and, by the plan's shares, with the slowest other
// process. Only parts that cost a good fraction of the step are named, and only after a while. A
// named part stays named until it is well below the limit. A link that shares a line is judged by
// everything that the line may have carried. Pure: no clock, no file.
class SlowParts {
 public:
  explicit SlowParts(ExpectedSpeeds expected) : expected_(std::move(expected)) {}

  struct Change {
    bool slow = false;     // false: no longer slow
    std::string sentence;  // which part, how fast, compared with what
  };
  // The changes that this step decides.
  std::vector<Change> add(const StepLine& line);
  std::vector<std::string> sentences() const;  // of all parts that are slow now

  // A decision covers this many of the latest steps. For a process it covers at least
  // kProcessSeconds: a host that does other work for a moment is not slow.
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

// Names steps that take ten times the median of the latest ones, with the cores that other programs
// used meanwhile. Of several in a row only the first. Pure: no clock, no file.
class SlowSteps {
 public:
  struct Host {
    std::string name;
    std::int64_t cores = 0;  // 0: unknown
  };
  explicit SlowSteps(std::map<net::ProcessName, Host> hosts) : hosts_(std::move(hosts)) {}

  std::string add(const StepLine& line);  // empty: nothing to report

 private:
  std::string load(const StepLine& line) const;

  const std::map<net::ProcessName, Host> hosts_;  // by process
  RecentMedian seconds_{64};
  std::int64_t steps_ = 0;
  bool slow_ = false;  // of the latest step
};

// Tells the other observers of a run which links and processes (SlowParts) and which steps
// (SlowSteps) are slow, and how steps compare with their forecast (ForecastCheck).
class SlowObserver : public RunObserver {
 public:
  SlowObserver(const plan::Plan& plan, const ModelQuestions& model,
               std::vector<RunObserver*> observers);

  void step(const StepLine& line) override;

 private:
  SlowParts slow_;
  SlowSteps slow_steps_;
  ForecastCheck forecast_;
  std::int64_t steps_ = 0;
  const RunObservers observers_;
};

}  // namespace strait::run

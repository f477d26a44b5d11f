#pragma once

#include <nlohmann/json_fwd.hpp>

#include "framework/store/sample.h"
#include "launcher/run/control_message.h"

namespace strait::run {

// One step of the whole run, with the combined metrics of all processes: a line of metrics.jsonl.
struct StepLine : trace::StepMetrics {
  store::Step step{};
  std::vector<std::pair<net::ProcessName, trace::StepMetrics>> processes;  // of each process
  std::vector<trace::BoundaryMetrics> boundaries;  // in the order of the processes
  std::vector<trace::SyncMetrics> sync;            // the same
  struct LinkBytes : LinkTraffic {
    net::ProcessName sender;
  };
  std::vector<LinkBytes> links;  // the same order; not written
};

// Keys in the order of the metrics' table; unknown values are null; numbers read back exactly.
nlohmann::ordered_json to_json(const StepLine& line);

// Median of the latest values. Pure.
class RecentMedian {
 public:
  explicit RecentMedian(std::size_t most) : most_(most) {}
  void add(double value);
  double median() const;  // 0 before the first
  bool empty() const { return latest_.empty(); }

 private:
  std::size_t most_;
  std::vector<double> latest_;  // ring
  std::size_t next_ = 0;
};

// Combines the reports of the processes about a step. Pure: no clock, no file.
class StepLedger {
 public:
  explicit StepLedger(std::vector<net::ProcessName> processes);

  // The line, if this report completes its step. MessageError: the process reported this step or a
  // later one before.
  std::optional<StepLine> add(net::ProcessName process, const StepDone& done);
  // The process reports no more. Returns the steps for which only its reports were missing, in
  // order.
  std::vector<StepLine> leave(net::ProcessName process);

  // The process reports from the step after `made` on.
  void join(net::ProcessName process, store::Step made);

  // Median of the latest steps; 0 before the first.
  double median_seconds() const { return seconds_.median(); }

 private:
  bool complete(const std::map<net::ProcessName, StepDone>& parts) const;
  StepLine close(store::Step step);
  StepLine merge(const std::map<net::ProcessName, StepDone>& parts) const;

  std::vector<net::ProcessName> processes_;
  std::map<net::ProcessName, store::Step> newest_;
  std::map<store::Step, std::map<net::ProcessName, StepDone>> open_;
  // Of many steps, so that the watchdog's timeout changes slowly.
  RecentMedian seconds_{64};
};

// Forecast of the rest of a run from its latest steps. Pure.
class RemainingTime {
 public:
  explicit RemainingTime(store::Step to = {}) : to_(to) {}
  void add(store::Step step, double seconds);
  std::optional<double> seconds() const;  // empty before the first step

 private:
  store::Step to_;
  store::Step step_{};
  // Of few steps, so that it follows a change of speed. The median, because a step with a
  // checkpoint or an evaluation is an outlier.
  RecentMedian seconds_{32};
};

}  // namespace strait::run

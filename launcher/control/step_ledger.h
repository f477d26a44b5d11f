#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "framework/store/sample.h"
#include "launcher/control/control_message.h"

namespace strait::control {

// One step of the whole run, with the combined metrics of all processes: a line of metrics.jsonl.
struct StepLine : trace::StepMetrics {
  store::Step step{};
  std::vector<std::pair<net::ProcessName, trace::StepMetrics>> processes;  // of each of them
  std::vector<trace::BoundaryMetrics> boundaries;  // in the order of the processes
  std::vector<trace::SyncMetrics> sync;            // likewise
};

// The keys in the order of the metrics' table; unknown values are null; numbers read back exactly.
nlohmann::ordered_json to_json(const StepLine& line);

// Puts together what the processes tell of a step. Pure: no clock, no file.
class StepLedger {
 public:
  explicit StepLedger(std::vector<net::ProcessName> processes);

  // The whole line when this was the last process of its step. A process that reports a step twice,
  // or out of order, is a MessageError.
  std::optional<StepLine> add(net::ProcessName process, const StepDone& done);
  // This process reports no more; steps that waited for it alone are whole, and in order.
  std::vector<StepLine> leave(net::ProcessName process);

  // This one does (again) from behind this step on.
  void join(net::ProcessName process, store::Step made);

  // Of the latest steps; 0 before the first.
  double median_seconds() const;

 private:
  bool whole(const std::map<net::ProcessName, StepDone>& parts) const;
  StepLine close(store::Step step);
  StepLine merge(const std::map<net::ProcessName, StepDone>& parts) const;

  std::vector<net::ProcessName> processes_;
  std::map<net::ProcessName, store::Step> newest_;
  std::map<store::Step, std::map<net::ProcessName, StepDone>> open_;
  std::vector<double> seconds_;  // a ring
  std::size_t next_second_ = 0;
};

// How long the rest of a run will take, judged by its latest steps. Pure.
class RemainingTime {
 public:
  explicit RemainingTime(store::Step to = {}) : to_(to) {}
  void add(store::Step step, double seconds);
  std::optional<double> seconds() const;  // nothing before the first step

 private:
  store::Step to_;
  store::Step step_{};
  std::vector<double> latest_;  // a ring
  std::size_t next_ = 0;
};

// "0:41", "12:03", "3:07:00"
std::string clock_text(double seconds);

}  // namespace strait::control

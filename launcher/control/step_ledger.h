#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "launcher/control/control_message.h"

namespace strait::control {

// One step of the whole run: a line of metrics.jsonl.
struct StepLine {
  store::Step step{};
  std::optional<double> loss;
  std::optional<double> grad_norm;
  std::optional<double> learning_rate;
  std::int64_t tokens = 0;
  bool skipped = false;
  // The mean of the processes', so that a run's steps add up to its time. Not the longest: who
  // waits for another in one step need not in the next, when that one waits in turn.
  double seconds = 0;
  double tokens_per_second = 0;  // 0 when nobody knows the tokens
  std::uint64_t bytes_forward = 0;
  std::uint64_t bytes_backward = 0;
  std::uint64_t bytes_sync = 0;
  std::vector<std::pair<net::ProcessName, double>> idle;  // share of the step, 0 to 1
  std::vector<BoundaryStep> boundaries;                   // in the order of the processes
  std::vector<SyncStep> sync;                             // likewise

  double mean_idle() const;
};

// The keys in their promised order; what nobody knows is null; numbers read back exactly.
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

}  // namespace strait::control

#include "launcher/run/step_ledger.h"

#include <cmath>

#include "framework/trace/combine_metrics.h"
#include "framework/trace/metric_json.h"
#include "launcher/base/median.h"

namespace strait::run {
namespace {

using ProcessMetrics = std::vector<std::pair<net::ProcessName, trace::StepMetrics>>;

// Replicas that train apart report loss, norm and tokens of their own rows. From here on every
// process has those of all rows.
void combine_own_rows(ProcessMetrics& processes) {
  std::map<std::uint32_t, trace::StepMetrics> replicas;
  for (const auto& [name, metrics] : processes) {
    if (metrics.own_rows) replicas.emplace(name.replica, metrics);
  }
  if (replicas.empty()) return;
  double loss = 0;
  double margin = 0;
  double accuracy = 0;
  double squares = 0;
  std::int64_t tokens = 0;
  std::int64_t targets = 0;
  for (const auto& [replica, own] : replicas) {
    const std::int64_t count = own.targets.value_or(0);
    const auto weight = static_cast<double>(count);
    // The loss of no rows is not a number.
    if (count > 0) loss += own.loss.value_or(0) * weight;
    margin += own.margin.value_or(0) * weight;
    accuracy += own.accuracy.value_or(0) * weight;
    squares += std::pow(own.grad_norm.value_or(0), 2);
    tokens += own.tokens.value_or(0);
    targets += count;
  }
  const auto all = static_cast<double>(targets);
  for (auto& [name, metrics] : processes) {
    // A replica without targets makes no update, which is no fault while others have some.
    metrics.skipped = metrics.skipped && (metrics.targets != 0 || targets == 0);
    metrics.loss = loss / all;
    if (metrics.margin) metrics.margin = margin / all;
    if (metrics.accuracy) metrics.accuracy = accuracy / all;
    metrics.grad_norm = std::sqrt(squares / static_cast<double>(replicas.size()));
    metrics.tokens = tokens;
    metrics.targets = targets;
  }
}

}  // namespace

void RecentMedian::add(double value) {
  if (latest_.size() < most_) {
    latest_.push_back(value);
  } else {
    latest_[next_] = value;
  }
  next_ = (next_ + 1) % most_;
}

double RecentMedian::median() const { return base::median(latest_); }

nlohmann::ordered_json to_json(const StepLine& line) {
  nlohmann::ordered_json object = {{"step", store::number(line.step)}};
  trace::append_metrics<trace::StepMetrics>(object, line, line.processes);
  object["boundaries"] = trace::metrics_list(line.boundaries);
  object["sync"] = trace::metrics_list(line.sync);
  return object;
}

StepLedger::StepLedger(std::vector<net::ProcessName> processes)
    : processes_(std::move(processes)) {}

std::optional<StepLine> StepLedger::add(net::ProcessName process, const StepDone& done) {
  const auto newest = newest_.find(process);
  if (newest != newest_.end() && done.step <= newest->second) {
    throw base::MessageError(fmt::format("{} reported step {} after step {}", process.describe(),
                                         store::number(done.step), store::number(newest->second)));
  }
  newest_[process] = done.step;
  auto& parts = open_[done.step];
  parts[process] = done;
  if (!complete(parts)) return std::nullopt;
  return close(done.step);
}

std::vector<StepLine> StepLedger::leave(net::ProcessName process) {
  std::erase(processes_, process);
  std::vector<store::Step> steps;
  for (const auto& [step, parts] : open_) {
    // An empty map of processes would make every open step complete.
    if (!processes_.empty() && complete(parts)) steps.push_back(step);
  }
  std::vector<StepLine> lines;
  lines.reserve(steps.size());
  for (const store::Step step : steps) lines.push_back(close(step));
  return lines;
}

void StepLedger::join(net::ProcessName process, store::Step made) {
  processes_.push_back(process);
  // The replica reports no step up to the checkpoint at which it joined.
  newest_[process] = made;
}

// Reports of processes that have left are combined too, but not waited for.
bool StepLedger::complete(const std::map<net::ProcessName, StepDone>& parts) const {
  return std::ranges::all_of(processes_, [&](const auto& name) { return parts.contains(name); });
}

StepLine StepLedger::close(store::Step step) {
  StepLine line = merge(open_.at(step));
  open_.erase(step);
  seconds_.add(line.seconds);
  return line;
}

StepLine StepLedger::merge(const std::map<net::ProcessName, StepDone>& parts) const {
  StepLine line;
  for (const auto& [process, part] : parts) {
    line.step = part.step;
    line.processes.emplace_back(process, part);
    line.boundaries.insert(line.boundaries.end(), part.boundaries.begin(), part.boundaries.end());
    line.sync.insert(line.sync.end(), part.sync.begin(), part.sync.end());
    for (const LinkTraffic& link : part.links) line.links.push_back({link, process});
  }
  combine_own_rows(line.processes);
  static_cast<trace::StepMetrics&>(line) = trace::combine(line.processes);
  return line;
}

void RemainingTime::add(store::Step step, double seconds) {
  step_ = step;
  seconds_.add(seconds);
}

std::optional<double> RemainingTime::seconds() const {
  if (seconds_.empty()) return std::nullopt;
  const auto left = std::max<std::int64_t>(0, store::number(to_) - store::number(step_));
  return static_cast<double>(left) * seconds_.median();
}

}  // namespace strait::run

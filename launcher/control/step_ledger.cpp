#include "launcher/control/step_ledger.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>

namespace strait::control {
namespace {

constexpr std::size_t kRemembered = 64;

template <class T>
nlohmann::ordered_json or_null(const std::optional<T>& value) {
  return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json(nullptr);
}

}  // namespace

double StepLine::mean_idle() const {
  const double sum = std::accumulate(idle.begin(), idle.end(), 0.0,
                                     [](double a, const auto& one) { return a + one.second; });
  return idle.empty() ? 0 : sum / static_cast<double>(idle.size());
}

nlohmann::ordered_json to_json(const StepLine& line) {
  nlohmann::ordered_json idle = nlohmann::ordered_json::object();
  for (const auto& [process, share] : line.idle) idle[process.text()] = share;
  nlohmann::ordered_json boundaries = nlohmann::ordered_json::array();
  for (const BoundaryStep& boundary : line.boundaries) boundaries.push_back(to_json(boundary));
  nlohmann::ordered_json sync = nlohmann::ordered_json::array();
  for (const SyncStep& one : line.sync) sync.push_back(to_json(one));
  return {{"step", store::number(line.step)},
          {"loss", or_null(line.loss)},
          {"grad_norm", or_null(line.grad_norm)},
          {"learning_rate", or_null(line.learning_rate)},
          {"tokens", line.tokens},
          {"seconds", line.seconds},
          {"tokens_per_second", line.tokens_per_second},
          {"bytes_forward", line.bytes_forward},
          {"bytes_backward", line.bytes_backward},
          {"bytes_sync", line.bytes_sync},
          {"skipped", line.skipped},
          {"idle", idle},
          {"boundaries", std::move(boundaries)},
          {"sync", std::move(sync)}};
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
  if (!whole(parts)) return std::nullopt;
  return close(done.step);
}

std::vector<StepLine> StepLedger::leave(net::ProcessName process) {
  std::erase(processes_, process);
  std::vector<store::Step> steps;
  for (const auto& [step, parts] : open_) {
    if (!processes_.empty() && whole(parts)) steps.push_back(step);
  }
  std::vector<StepLine> lines;
  lines.reserve(steps.size());
  for (const store::Step step : steps) lines.push_back(close(step));
  return lines;
}

void StepLedger::join(net::ProcessName process, store::Step made) {
  processes_.push_back(process);
  newest_[process] = made;
}

// Whoever has left may have had its part in it.
bool StepLedger::whole(const std::map<net::ProcessName, StepDone>& parts) const {
  return std::ranges::all_of(processes_, [&](const auto& name) { return parts.contains(name); });
}

StepLine StepLedger::close(store::Step step) {
  StepLine line = merge(open_.at(step));
  open_.erase(step);
  if (seconds_.size() < kRemembered) {
    seconds_.push_back(line.seconds);
  } else {
    seconds_[next_second_] = line.seconds;
  }
  next_second_ = (next_second_ + 1) % kRemembered;
  return line;
}

StepLine StepLedger::merge(const std::map<net::ProcessName, StepDone>& parts) const {
  StepLine line;
  for (const auto& [process, part] : parts) {
    line.step = part.step;
    if (!line.loss) line.loss = part.loss;
    if (!line.grad_norm) line.grad_norm = part.grad_norm;
    if (!line.learning_rate) line.learning_rate = part.learning_rate;
    line.tokens = std::max(line.tokens, part.tokens.value_or(0));
    line.skipped = line.skipped || part.skipped;
    line.seconds += part.seconds / static_cast<double>(parts.size());
    line.bytes_forward += part.bytes_forward;
    line.bytes_backward += part.bytes_backward;
    line.bytes_sync += part.bytes_sync;
    line.boundaries.insert(line.boundaries.end(), part.boundaries.begin(), part.boundaries.end());
    line.sync.insert(line.sync.end(), part.sync.begin(), part.sync.end());
    const double busy = part.seconds > 0 ? part.busy_seconds / part.seconds : 1;
    line.idle.emplace_back(process, std::clamp(1 - busy, 0.0, 1.0));
  }
  if (line.seconds > 0) line.tokens_per_second = static_cast<double>(line.tokens) / line.seconds;
  return line;
}

double StepLedger::median_seconds() const {
  if (seconds_.empty()) return 0;
  std::vector<double> sorted = seconds_;
  const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
  std::nth_element(sorted.begin(), middle, sorted.end());
  return *middle;
}

}  // namespace strait::control

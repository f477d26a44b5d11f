#include "placement/evaluation.h"

#include <algorithm>
#include <cmath>

namespace strait::placement {
namespace {

// Large enough to lead off a plateau, small enough not to trade the slowest part for others.
constexpr double kSlope = 0.02;

double mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

bool alike(const std::vector<Device>& devices) {
  return std::ranges::all_of(devices, [&](const Device& device) {
    return device.flops_per_second == devices.front().flops_per_second &&
           device.memory_bytes == devices.front().memory_bytes &&
           device.updates_per_second == devices.front().updates_per_second;
  });
}

}  // namespace

Evaluation::Evaluation(const Problem& problem, const LayerSums& sums, int stages, int replicas)
    : problem_(problem),
      sums_(sums),
      stages_(stages),
      replicas_(replicas),
      micro_batches_(static_cast<double>(problem.micro_batches) / replicas),
      limited_lines_(std::ranges::any_of(problem.hosts,
                                         [](const Line& line) {
                                           return line.up_bytes_per_second != kUnlimited ||
                                                  line.down_bytes_per_second != kUnlimited;
                                         })),
      equal_devices_(alike(problem.devices)) {
  const auto of_replica = static_cast<std::size_t>(replicas);
  const auto of_stage = static_cast<std::size_t>(stages);
  state_.limits.resize(of_stage);
  state_.path_sum.resize(of_replica);
  state_.slowest_path.resize(of_replica);
  state_.pipeline.resize(of_replica);
  state_.per_byte.resize(of_stage);
  state_.latency.resize(of_stage);
}

void Evaluation::set_devices(std::vector<std::size_t> devices, const std::vector<LayerSpan>& cut) {
  devices_ = std::move(devices);
  swapped_.clear();
  for (int replica = 0; replica < replicas_; ++replica) compute_paths(replica);
  for (int stage = 0; stage < stages_; ++stage) {
    compute_limits(stage);
    compute_exchange(stage);
  }
  if (cut.empty()) {
    cut_for_devices();
  } else {
    // A cut that does not fit is no layout: its cost is unlimited.
    state_.cut = fits(cut) ? cut : std::vector<LayerSpan>();
  }
  compute_pipelines();
  compute_lines();
}

// Where all devices are alike, a micro-batch passes any cut in the same time, so one cut is best
// for all paths.
void Evaluation::cut_for_devices() {
  const double floor = equal_devices_ ? 0 : *std::ranges::max_element(state_.slowest_path);
  state_.cut = cut_layers(sums_, state_.limits, std::llround(micro_batches_), floor);
}

bool Evaluation::fits(const std::vector<LayerSpan>& cut) const {
  for (int stage = 0; stage < stages_; ++stage) {
    const auto at = static_cast<std::size_t>(stage);
    const std::int64_t held = held_micro_batches(stages_, stage, std::llround(micro_batches_));
    if (sums_.memory_bytes(cut[at], held) > state_.limits[at].memory_bytes) return false;
  }
  return true;
}

void Evaluation::swap(std::size_t one, std::size_t other) {
  std::swap(devices_[one], devices_[other]);
  swapped_.push_back(one);
  swapped_.push_back(other);
}

void Evaluation::refresh() {
  std::vector<int> replicas;
  std::vector<int> stages;
  for (const std::size_t at : swapped_) {
    // A device that is left out costs nothing.
    if (at >= used()) continue;
    replicas.push_back(static_cast<int>(at) / stages_);
    stages.push_back(static_cast<int>(at) % stages_);
  }
  swapped_.clear();
  const auto once = [](std::vector<int>& values) {
    std::ranges::sort(values);
    values.erase(std::unique(values.begin(), values.end()), values.end());
  };
  once(replicas);
  once(stages);
  for (const int replica : replicas) compute_paths(replica);
  for (const int stage : stages) {
    compute_limits(stage);
    compute_exchange(stage);
  }
  // The best cut follows from speeds and memory alone, unless these are the same everywhere.
  if (!equal_devices_) cut_for_devices();
  compute_pipelines();
  compute_lines();
}

double Evaluation::direction_seconds(std::size_t from, std::size_t to, double bytes) const {
  return bytes / problem_.path(from, to).bytes_per_second;
}

// The pace that the path after this stage allows.
double Evaluation::hop_seconds(int replica, int stage) const {
  const std::size_t upper = host_at(place(replica, stage));
  const std::size_t lower = host_at(place(replica, stage + 1));
  const double down = direction_seconds(upper, lower, problem_.forward_bytes);
  const double up = direction_seconds(lower, upper, problem_.backward_bytes);
  return problem_.duplex ? std::max(down, up) : down + up;
}

void Evaluation::compute_paths(int replica) {
  double sum = 0;
  double slowest = 0;
  for (int stage = 0; stage + 1 < stages_; ++stage) {
    const std::size_t upper = host_at(place(replica, stage));
    const std::size_t lower = host_at(place(replica, stage + 1));
    sum += direction_seconds(upper, lower, problem_.forward_bytes) +
           direction_seconds(lower, upper, problem_.backward_bytes) +
           problem_.path(upper, lower).seconds + problem_.path(lower, upper).seconds;
    slowest = std::max(slowest, hop_seconds(replica, stage));
  }
  state_.path_sum[static_cast<std::size_t>(replica)] = sum;
  state_.slowest_path[static_cast<std::size_t>(replica)] = slowest;
}

void Evaluation::compute_limits(int stage) {
  StageLimits limits;
  for (int replica = 0; replica < replicas_; ++replica) {
    const Device& device = problem_.devices[devices_[place(replica, stage)]];
    limits.flops_per_second = std::min(limits.flops_per_second, device.flops_per_second);
    limits.memory_bytes = std::min(limits.memory_bytes, device.memory_bytes);
    limits.updates_per_second = std::min(limits.updates_per_second, device.updates_per_second);
  }
  state_.limits[static_cast<std::size_t>(stage)] = limits;
}

// Each replica reduces one share of the values: all others send it theirs, and receive the sum.
void Evaluation::compute_exchange(int stage) {
  double most = 0;
  double latency = 0;
  for (int replica = 0; replica < replicas_; ++replica) {
    const std::size_t own = host_at(place(replica, stage));
    double both_ways = 0;
    for (int other = 0; other < replicas_; ++other) {
      if (other == replica) continue;
      const std::size_t peer = host_at(place(other, stage));
      both_ways += direction_seconds(own, peer, 1) + direction_seconds(peer, own, 1);
      latency = std::max(latency, problem_.path(own, peer).seconds);
    }
    most = std::max(most, both_ways);
  }
  state_.per_byte[static_cast<std::size_t>(stage)] = most / replicas_;
  state_.latency[static_cast<std::size_t>(stage)] = latency;
}

double Evaluation::stage_seconds(int replica, int stage) const {
  return sums_.flops(state_.cut[static_cast<std::size_t>(stage)]) /
         problem_.devices[devices_[place(replica, stage)]].flops_per_second;
}

double Evaluation::update_seconds(int replica, int stage) const {
  return sums_.updated(state_.cut[static_cast<std::size_t>(stage)]) /
         problem_.devices[devices_[place(replica, stage)]].updates_per_second;
}

double Evaluation::slowest_stage(int replica) const {
  double slowest = 0;
  for (int stage = 0; stage < stages_; ++stage) {
    slowest = std::max(slowest, stage_seconds(replica, stage));
  }
  return slowest;
}

void Evaluation::compute_pipelines() {
  if (state_.cut.empty()) return;
  for (int replica = 0; replica < replicas_; ++replica) {
    const auto at = static_cast<std::size_t>(replica);
    // The first micro-batch passes everything once. The others follow at the pace of the slowest
    // part.
    double first = state_.path_sum[at];
    double pace = state_.slowest_path[at];
    double update = 0;
    for (int stage = 0; stage < stages_; ++stage) {
      const double seconds = stage_seconds(replica, stage);
      first += seconds;
      pace = std::max(pace, seconds);
      update = std::max(update, update_seconds(replica, stage));
    }
    state_.pipeline[at] = first + (micro_batches_ - 1) * pace + update;
  }
}

// Bytes of a step over each host's line, boundaries and replicas together.
void Evaluation::compute_lines() {
  state_.line = 0;
  if (!limited_lines_ || state_.cut.empty()) return;
  std::vector<double> sent(problem_.hosts.size(), 0);
  std::vector<double> received(problem_.hosts.size(), 0);
  std::vector<int> here(problem_.hosts.size(), 0);  // replicas of a stage, by host
  const auto carry = [&](std::size_t from, std::size_t to, double bytes) {
    if (host_at(from) == host_at(to)) return;
    sent[host_at(from)] += bytes;
    received[host_at(to)] += bytes;
  };
  for (int replica = 0; replica < replicas_; ++replica) {
    for (int stage = 0; stage + 1 < stages_; ++stage) {
      carry(place(replica, stage), place(replica, stage + 1),
            problem_.forward_bytes * micro_batches_);
      carry(place(replica, stage + 1), place(replica, stage),
            problem_.backward_bytes * micro_batches_);
    }
  }
  for (int stage = 0; stage < stages_; ++stage) {
    const double share = sums_.sync_bytes(state_.cut[static_cast<std::size_t>(stage)]) / replicas_;
    for (int replica = 0; replica < replicas_; ++replica) ++here[host_at(place(replica, stage))];
    for (int replica = 0; replica < replicas_; ++replica) {
      const std::size_t host = host_at(place(replica, stage));
      // A sum goes out in parts and comes back whole, so each share crosses twice. Replicas of one
      // host exchange theirs without its line.
      const double both_times = 2 * share * (replicas_ - here[host]);
      sent[host] += both_times;
      received[host] += both_times;
    }
    for (int replica = 0; replica < replicas_; ++replica) here[host_at(place(replica, stage))] = 0;
  }
  for (std::size_t at = 0; at < used(); ++at) {
    const Line& line = problem_.hosts[host_at(at)];
    const double seconds = std::max(sent[host_at(at)] / line.up_bytes_per_second,
                                    received[host_at(at)] / line.down_bytes_per_second);
    if (seconds <= state_.line) continue;
    state_.line = seconds;
    state_.busiest = devices_[at];
  }
}

double Evaluation::sync_seconds(int stage) const {
  if (replicas_ == 1) return 0;
  const auto at = static_cast<std::size_t>(stage);
  const double bytes = sums_.sync_bytes(state_.cut[at]);
  return bytes == 0 ? 0 : bytes * state_.per_byte[at] + 2 * problem_.rounds * state_.latency[at];
}

double Evaluation::together(double pipeline, double sync) const {
  // Clipping and skipped steps need one round trip between first stages, which nothing hides.
  const bool agrees = replicas_ > 1 && problem_.agrees_each_step;
  const double agreement = agrees ? state_.latency.front() : 0;
  return (problem_.sync_overlaps ? std::max(pipeline, sync) : pipeline + sync) + agreement;
}

double Evaluation::guide() const {
  if (state_.cut.empty()) return kUnlimited;
  std::vector<double> syncs;
  syncs.reserve(static_cast<std::size_t>(stages_));
  for (int stage = 0; stage < stages_; ++stage) syncs.push_back(sync_seconds(stage));
  return cost().seconds + kSlope * (mean(state_.pipeline) + mean(syncs));
}

Cost Evaluation::cost() const {
  Cost cost;
  if (state_.cut.empty()) return cost;
  const auto slowest = std::ranges::max_element(state_.pipeline) - state_.pipeline.begin();
  const auto replica = static_cast<int>(slowest);
  cost.pipeline_seconds = state_.pipeline[static_cast<std::size_t>(slowest)];
  int synced = 0;
  for (int stage = 0; stage < stages_; ++stage) {
    if (sync_seconds(stage) > sync_seconds(synced)) synced = stage;
  }
  cost.sync_seconds = sync_seconds(synced);
  cost.line_seconds = state_.line;
  const double step = together(cost.pipeline_seconds, cost.sync_seconds);
  cost.seconds = std::max(step, cost.line_seconds);
  if (cost.line_seconds > step) {
    cost.critical = Critical::line;
  } else if (cost.sync_seconds > cost.pipeline_seconds) {
    cost.critical = Critical::sync;
  } else if (state_.slowest_path[static_cast<std::size_t>(slowest)] > slowest_stage(replica)) {
    cost.critical = Critical::path;
  }
  cost.critical_device = critical_device(cost.critical, replica, synced);
  return cost;
}

std::size_t Evaluation::critical_device(Critical critical, int replica, int synced) const {
  int stage = 0;
  switch (critical) {
    case Critical::compute:
      while (stage_seconds(replica, stage) < slowest_stage(replica)) ++stage;
      break;
    case Critical::path:
      while (hop_seconds(replica, stage) < state_.slowest_path[static_cast<std::size_t>(replica)]) {
        ++stage;
      }
      break;
    case Critical::sync:
      return devices_[place(0, synced)];
    case Critical::line:
      return state_.busiest;
  }
  return devices_[place(replica, stage)];
}

Layout Evaluation::layout() const {
  Layout layout{stages_, replicas_, {}, state_.cut};
  layout.devices.assign(devices_.begin(), devices_.begin() + static_cast<std::ptrdiff_t>(used()));
  return layout;
}

Cost cost_of(const Problem& problem, const Layout& layout) {
  const LayerSums sums(problem);
  Evaluation evaluation(problem, sums, layout.stages, layout.replicas);
  evaluation.set_devices(layout.devices, layout.cut);
  return evaluation.cost();
}

}  // namespace strait::placement

#pragma once

#include "placement/cut_layers.h"
#include "placement/problem.h"

namespace strait::placement {

// The cost of a layout that a search changes step by step: only what a change touches is computed
// again. Its places are those of a layout, by replica and stage, followed by the devices that it
// leaves out.
class Evaluation {
 public:
  // `problem` and `sums` outlive it.
  Evaluation(const Problem& problem, const LayerSums& sums, int stages, int replicas);

  int stages() const { return stages_; }
  int replicas() const { return replicas_; }
  std::size_t places() const { return devices_.size(); }
  std::size_t used() const {
    return static_cast<std::size_t>(stages_) * static_cast<std::size_t>(replicas_);
  }
  std::size_t place(int replica, int stage) const {
    return static_cast<std::size_t>(replica) * static_cast<std::size_t>(stages_) +
           static_cast<std::size_t>(stage);
  }
  const std::vector<std::size_t>& devices() const { return devices_; }

  // All places anew. Without a cut the layers are cut for these devices.
  void set_devices(std::vector<std::size_t> devices, const std::vector<LayerSpan>& cut = {});
  // Takes effect with refresh(), which allows several in one step.
  void swap(std::size_t one, std::size_t other);
  void refresh();

  // Seconds of a step, and a small part of what is not slowest: a plateau gets a slope.
  double guide() const;
  Cost cost() const;
  Layout layout() const;

  // What swap() and refresh() change, but for the devices.
  struct State {
    std::vector<LayerSpan> cut;
    std::vector<StageLimits> limits;   // by stage
    std::vector<double> path_sum;      // by replica: of a micro-batch, there and back
    std::vector<double> slowest_path;  // by replica
    std::vector<double> pipeline;      // by replica: seconds of a step
    std::vector<double> per_byte;      // by stage: seconds per byte that is reduced
    std::vector<double> latency;       // by stage: largest one-way latency between its replicas
    double line = 0;                   // seconds of the busiest host's line
    std::size_t busiest = 0;           // device of that host
  };
  const State& state() const { return state_; }
  void restore(const State& state) {
    state_ = state;
    swapped_.clear();
  }

 private:
  std::size_t host_at(std::size_t place) const { return problem_.devices[devices_[place]].host; }
  double hop_seconds(int replica, int stage) const;
  void cut_for_devices();
  bool fits(const std::vector<LayerSpan>& cut) const;
  std::size_t critical_device(Critical critical, int replica, int synced) const;
  double direction_seconds(std::size_t from, std::size_t to, double bytes) const;
  void compute_paths(int replica);
  void compute_limits(int stage);
  void compute_exchange(int stage);
  void compute_pipelines();
  void compute_lines();
  double stage_seconds(int replica, int stage) const;
  double update_seconds(int replica, int stage) const;
  double slowest_stage(int replica) const;
  double sync_seconds(int stage) const;
  double together(double pipeline, double sync) const;

  const Problem& problem_;
  const LayerSums& sums_;
  int stages_;
  int replicas_;
  double micro_batches_;  // of a replica
  bool limited_lines_;
  bool equal_devices_;
  std::vector<std::size_t> devices_;
  State state_;
  std::vector<std::size_t> swapped_;  // places since the last refresh()
};

}  // namespace strait::placement

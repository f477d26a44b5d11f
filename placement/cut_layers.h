#pragma once

#include "placement/problem.h"

namespace strait::placement {

// Prefix sums over a problem's layers, and how many micro-batches a stage holds.
class LayerSums {
 public:
  explicit LayerSums(const Problem& problem);
  int layers() const { return static_cast<int>(flops_.size()) - 1; }
  double flops(const LayerSpan& span) const { return difference(flops_, span); }
  double sync_bytes(const LayerSpan& span) const { return difference(sync_, span); }
  double updated(const LayerSpan& span) const { return difference(updated_, span); }
  double memory_bytes(const LayerSpan& span, std::int64_t held_micro_batches) const {
    return difference(state_, span) +
           static_cast<double>(std::min(held_micro_batches, most_held_)) * difference(saved_, span);
  }

 private:
  static double difference(const std::vector<double>& sums, const LayerSpan& span) {
    return sums[static_cast<std::size_t>(span.second)] - sums[static_cast<std::size_t>(span.first)];
  }
  std::int64_t most_held_;
  std::vector<double> flops_{0};
  std::vector<double> state_{0};
  std::vector<double> saved_{0};
  std::vector<double> sync_{0};
  std::vector<double> updated_{0};
};

// The slowest and the smallest device that computes a stage in any replica.
struct StageLimits {
  double flops_per_second = kUnlimited;
  double memory_bytes = kUnlimited;
  double updates_per_second = kUnlimited;
};

// Micro-batches that a stage of 1F1B holds at a time.
std::int64_t held_micro_batches(int stages, int stage, std::int64_t micro_batches);

// Cuts the layers into one span per stage, each of at least one layer and within memory, so that a
// step takes the least time: one micro-batch passes all stages, and the others follow at the pace
// of the slowest one, or of `floor_seconds`, which the slowest path takes anyway. Each micro-batch
// counts its part of the update. Empty: no cut fits.
std::vector<LayerSpan> cut_layers(const LayerSums& sums, const std::vector<StageLimits>& stages,
                                  std::int64_t micro_batches, double floor_seconds = 0);

}  // namespace strait::placement

#include "placement/cut_layers.h"

#include <algorithm>

namespace strait::placement {
namespace {

// Sums of doubles differ in their last bits.
constexpr double kSame = 1 + 1e-9;
constexpr double kFiner = 1.02;  // from one limit to the next

// The spans that stages may take: within memory, and within `seconds`.
class Bounds {
 public:
  Bounds(const LayerSums& sums, const std::vector<StageLimits>& stages, std::int64_t micro_batches)
      : sums_(sums), stages_(stages), micro_batches_(static_cast<double>(micro_batches)) {
    for (std::size_t s = 0; s < stages.size(); ++s) {
      held_.push_back(
          held_micro_batches(static_cast<int>(stages.size()), static_cast<int>(s), micro_batches));
    }
  }

  std::size_t stages() const { return stages_.size(); }
  double seconds(std::size_t stage, const LayerSpan& span) const {
    const StageLimits& limits = stages_[stage];
    return sums_.flops(span) / limits.flops_per_second +
           sums_.updated(span) / (limits.updates_per_second * micro_batches_);
  }
  // Of all layers on the slowest stage: no limit needs to be higher.
  double most_seconds() const {
    double most = 0;
    for (std::size_t s = 0; s < stages_.size(); ++s) {
      most = std::max(most, seconds(s, {0, sums_.layers()}));
    }
    return most;
  }
  bool allows(std::size_t stage, const LayerSpan& span, double limit) const {
    return seconds(stage, span) <= limit * kSame &&
           (stages_[stage].memory_bytes == kUnlimited ||
            sums_.memory_bytes(span, held_[stage]) <= stages_[stage].memory_bytes);
  }
  // Whether every stage can take at least one layer, and all layers are taken. To take as many as
  // possible is never worse for the stages that follow.
  bool covers(double limit) const {
    const int layers = sums_.layers();
    const auto stages = static_cast<int>(stages_.size());
    int first = 0;
    for (int s = 0; s < stages; ++s) {
      const int most = layers - (stages - 1 - s);  // the others need one each
      int end = first;
      while (end < most && allows(static_cast<std::size_t>(s), {first, end + 1}, limit)) ++end;
      if (end == first) return false;
      first = end;
    }
    return first == layers;
  }

 private:
  const LayerSums& sums_;
  const std::vector<StageLimits>& stages_;
  double micro_batches_;
  std::vector<std::int64_t> held_;
};

// The least limit that covers all layers, to one part in a thousand million; unlimited: none does.
double least_limit(const LayerSums& sums, const Bounds& bounds, double speed_of_all) {
  const LayerSpan all{0, sums.layers()};
  double low = sums.flops(all) / speed_of_all / kSame;
  double high = bounds.most_seconds();
  if (!bounds.covers(high)) return kUnlimited;
  if (bounds.covers(low)) return low;
  while (high - low > 1e-9 * high) {
    const double middle = (low + high) / 2;
    (bounds.covers(middle) ? high : low) = middle;
  }
  return high;
}

// A cut, and how a micro-batch passes its stages.
struct Passed {
  std::vector<LayerSpan> cut;
  double seconds = kUnlimited;  // through all stages
  double pace = kUnlimited;     // of the slowest stage
};

// The cut within a limit that a micro-batch passes in the least time. The last span of a stage that
// ends at a layer may begin at any layer from some one on, and a later end moves that one only
// down: a window, whose best begin a queue holds. So the time is linear in the layers.
Passed fastest_pass(const LayerSums& sums, const Bounds& bounds, double limit) {
  // least[e]: seconds of the first e layers in the stages so far. begins: by stage and e, where the
  // last of them begins.
  const auto columns = static_cast<std::size_t>(sums.layers()) + 1;
  std::vector<double> least(columns, kUnlimited);
  std::vector<double> next(columns);
  std::vector<int> begins(bounds.stages() * columns, 0);
  std::vector<std::pair<double, int>> queue(columns);  // rising: without the last span's end, begin
  least[0] = 0;
  for (std::size_t s = 0; s < bounds.stages(); ++s) {
    std::ranges::fill(next, kUnlimited);
    std::size_t front = 0;
    std::size_t back = 0;
    for (int end = 1; end <= sums.layers(); ++end) {
      const double before = least[static_cast<std::size_t>(end - 1)];
      if (before != kUnlimited) {
        const double value = before - bounds.seconds(s, {0, end - 1});
        while (back > front && queue[back - 1].first > value) --back;
        queue[back++] = {value, end - 1};
      }
      while (front < back && !bounds.allows(s, {queue[front].second, end}, limit)) ++front;
      if (front == back) continue;
      const int begin = queue[front].second;
      const auto at = static_cast<std::size_t>(end);
      next[at] = least[static_cast<std::size_t>(begin)] + bounds.seconds(s, {begin, end});
      begins[s * columns + at] = begin;
    }
    std::swap(least, next);
  }
  if (least.back() == kUnlimited) return {};
  Passed passed{std::vector<LayerSpan>(bounds.stages()), least.back(), 0};
  int end = sums.layers();
  for (std::size_t s = bounds.stages(); s-- > 0;) {
    passed.cut[s] = {begins[s * columns + static_cast<std::size_t>(end)], end};
    passed.pace = std::max(passed.pace, bounds.seconds(s, passed.cut[s]));
    end = passed.cut[s].first;
  }
  return passed;
}

}  // namespace

LayerSums::LayerSums(const Problem& problem) : most_held_(problem.most_held) {
  const auto add = [](std::vector<double>& sums, double value) {
    sums.push_back(sums.back() + value);
  };
  for (const Layer& layer : problem.layers) {
    add(flops_, layer.flops);
    add(state_, layer.state_bytes);
    add(saved_, layer.saved_bytes);
    add(sync_, layer.sync_bytes);
    add(updated_, layer.updated);
  }
}

std::int64_t held_micro_batches(int stages, int stage, std::int64_t micro_batches) {
  return std::min<std::int64_t>(micro_batches, stages - stage);
}

std::vector<LayerSpan> cut_layers(const LayerSums& sums, const std::vector<StageLimits>& stages,
                                  std::int64_t micro_batches, double floor_seconds) {
  const Bounds bounds(sums, stages, micro_batches);
  double all = 0;
  for (const StageLimits& stage : stages) all += stage.flops_per_second;
  double limit = std::max(least_limit(sums, bounds, all), floor_seconds);
  if (limit == kUnlimited) return {};
  const auto others = static_cast<double>(micro_batches - 1);
  Passed best = fastest_pass(sums, bounds, limit);
  // A slower pace can let a micro-batch pass faster. No other limit is worth more than that gain.
  const double least = fastest_pass(sums, bounds, bounds.most_seconds()).seconds;
  double total = others * limit + best.seconds;
  for (limit *= kFiner; others * limit + least < total; limit *= kFiner) {
    Passed other = fastest_pass(sums, bounds, limit);
    const double of_other = others * std::max(other.pace, floor_seconds) + other.seconds;
    if (of_other >= total) continue;
    total = of_other;
    best = std::move(other);
  }
  return best.cut;
}

}  // namespace strait::placement

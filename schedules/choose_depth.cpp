#include "schedules/choose_depth.h"

#include <algorithm>

namespace strait::schedules {
namespace {

constexpr double kGoodEnough = 1.01;

bool fits_in_flight(const Schedule& schedule, const PipelineShape& shape, int most_in_flight) {
  for (int s = 0; s < shape.stages; ++s) {
    if (schedule.most_in_flight(shape, StageIndex{s}) > most_in_flight) return false;
  }
  return true;
}

}  // namespace

int choose_depth(const Schedule& schedule, const PipelineShape& shape,
                 std::span<const ChunkCost> costs, std::span<const LinkCost> links,
                 int most_in_flight, int deepest, const Machines& machines) {
  std::vector<double> seconds;  // by depth
  double best = std::numeric_limits<double>::infinity();
  PipelineShape tried = shape;
  for (tried.depth = 0; tried.depth <= deepest; ++tried.depth) {
    if (!fits_in_flight(schedule, tried, most_in_flight)) break;  // deeper only holds more
    seconds.push_back(simulate(action_lists(schedule, tried), costs, links, machines).seconds);
    best = std::min(best, seconds.back());
  }
  for (std::size_t depth = 0; depth < seconds.size(); ++depth) {
    if (seconds[depth] <= best * kGoodEnough) return static_cast<int>(depth);
  }
  return 0;
}

}  // namespace strait::schedules

#include <gtest/gtest.h>

#include <algorithm>

#include "placement/evaluation.h"
#include "placement/search.h"
#include "schedules/choose_depth.h"
#include "schedules/schedule.h"
#include "schedules/simulate.h"
#include "tests/placement/networks.h"

namespace strait::placement {
namespace {

// Seconds of one replica's step by the simulator, at the depth that a plan takes.
double simulated_seconds(const Problem& problem, const Layout& layout) {
  std::vector<schedules::ChunkCost> costs;
  std::vector<schedules::LinkCost> links;
  const LayerSums sums(problem);
  for (int stage = 0; stage < layout.stages; ++stage) {
    const Device& device = problem.devices[layout.device(0, stage)];
    const double seconds =
        sums.flops(layout.cut[static_cast<std::size_t>(stage)]) / device.flops_per_second;
    costs.push_back({.forward_seconds = seconds / 3, .backward_seconds = 2 * seconds / 3});
    if (stage + 1 == layout.stages) break;
    const std::size_t next = problem.devices[layout.device(0, stage + 1)].host;
    const Path& down = problem.path(device.host, next);
    const Path& up = problem.path(next, device.host);
    links.push_back({.forward_bytes = problem.forward_bytes,
                     .backward_bytes = problem.backward_bytes,
                     .forward_bytes_per_second = down.bytes_per_second,
                     .backward_bytes_per_second = up.bytes_per_second,
                     .latency_seconds = (down.seconds + up.seconds) / 2});
  }
  const schedules::Schedule& schedule = schedules::schedule_named("1f1b");
  schedules::PipelineShape shape{.stages = layout.stages,
                                 .micro_batches = static_cast<int>(problem.micro_batches)};
  shape.depth = schedules::choose_depth(schedule, shape, costs, links, shape.micro_batches);
  return schedules::simulate(schedules::action_lists(schedule, shape), costs, links).seconds;
}

// The cost leaves out how a schedule orders its work, so that a search can afford it. What it
// proposes is planned with the simulator.
TEST(PlacementCost, IsCloseToTheSimulator) {
  std::vector<double> ratios;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    Problem problem =
        random_problem(seed, 2 + seed % 7, 24, 8 + static_cast<std::int64_t>(seed % 25));
    std::ranges::fill(problem.hosts, Line());
    for (Device& device : problem.devices) device.memory_bytes = kUnlimited;
    const LayerSums sums(problem);
    Evaluation evaluation(problem, sums, static_cast<int>(problem.devices.size()), 1);
    evaluation.set_devices(TrivialLayouts(problem).of_shape(evaluation.stages(), 1).front());
    const Layout layout = evaluation.layout();
    ratios.push_back(evaluation.cost().seconds / simulated_seconds(problem, layout));
  }
  std::ranges::sort(ratios);
  EXPECT_NEAR(ratios[150], 1, 0.02);
  EXPECT_GT(ratios[15], 0.95);
  EXPECT_LT(ratios[285], 1.15);
  EXPECT_GT(ratios.front(), 0.8);
  EXPECT_LT(ratios.back(), 1.25);
}

}  // namespace
}  // namespace strait::placement

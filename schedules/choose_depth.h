#pragma once

#include "schedules/pipeline_shape.h"
#include "schedules/schedule.h"
#include "schedules/simulate.h"

namespace strait::schedules {

inline constexpr int kDeepestChosen = 3;

// `depth = "auto"`: of the depths 0 to `deepest` that hold at most `most_in_flight` micro-batches
// on every stage, the smallest with a simulated step within 1 % of the best. Depth 0 if none
// fits: the schedule cannot hold less, and the caller decides whether to refuse it. `shape.depth`
// is ignored.
int choose_depth(const Schedule& schedule, const PipelineShape& shape,
                 std::span<const ChunkCost> costs, std::span<const LinkCost> links,
                 int most_in_flight, int deepest = kDeepestChosen, const Machines& machines = {});

}  // namespace strait::schedules

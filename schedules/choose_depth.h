#pragma once

#include <span>

#include "schedules/pipeline_shape.h"
#include "schedules/schedule.h"
#include "schedules/simulate.h"

namespace strait::schedules {

// What `depth = "auto"` means: of the depths 0 to 3, the smallest whose simulated step is within 1
// % of the best one, among those that hold at most `most_in_flight` micro-batches on every stage.
// Depth 0 where not even that fits: it is the least this schedule can hold, and refusing is the
// caller's decision. `shape.depth` is ignored.
int choose_depth(const Schedule& schedule, const PipelineShape& shape,
                 std::span<const ChunkCost> costs, std::span<const LinkCost> links,
                 int most_in_flight);

}  // namespace strait::schedules

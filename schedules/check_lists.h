#pragma once

#include "schedules/pipeline_shape.h"
#include "schedules/schedule.h"

namespace strait::schedules {

// Whether the lists of a schedule can be run in this shape: every stage does each micro-batch's
// forward and backward through each of its chunks once, both in index order, each backward behind
// its forward, never holds more than the schedule promises, and there is no deadlock. Throws
// std::invalid_argument that names the schedule, the stage and the action. Pure.
void check_lists(const Schedule& schedule, const PipelineShape& shape);

}  // namespace strait::schedules

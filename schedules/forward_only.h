#pragma once

#include "schedules/action.h"
#include "schedules/pipeline_shape.h"

namespace strait::schedules {

// Evaluation: the forwards 0 to M-1 and nothing else, the same on every stage.
ActionList forward_only(const PipelineShape& shape, StageIndex stage);

}  // namespace strait::schedules

#pragma once

#include "schedules/action.h"
#include "schedules/pipeline_shape.h"

namespace strait::schedules {

// Evaluation: every micro-batch forward through every chunk and nothing else, the same on every
// stage; with one chunk the forwards 0 to M-1, with several in groups that keep all stages busy.
ActionList forward_only(const PipelineShape& shape, StageIndex stage);

}  // namespace strait::schedules

#pragma once

#include "schedules/action.h"
#include "schedules/pipeline_shape.h"

namespace strait::schedules {

// All forwards, then all backwards. Tolerates any network delay; holds every micro-batch of the
// step.
ActionList gpipe(const PipelineShape& shape, StageIndex stage);

// The most micro-batches whose activations a stage holds at once under this list.
int gpipe_in_flight(const PipelineShape& shape, StageIndex stage);

}  // namespace strait::schedules

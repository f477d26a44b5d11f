#pragma once

#include "schedules/action.h"
#include "schedules/pipeline_shape.h"

namespace strait::schedules {

// 1F1B: a few forwards to fill the pipeline, then one backward and one forward in turn, then the
// remaining backwards. Stage s of S fills with
//
//     min(M, (S - s) + depth * (S - 1 - s))
//
// forwards, which is also the most it ever holds. With depth 0 that is just enough for a network
// without delay. Each further depth lets one more forward be under way on every hop below, so that
// a stage computes while a slow link carries; one is enough when a hop there and back takes no
// longer than a stage's forward and backward.
ActionList one_forward_one_backward(const PipelineShape& shape, StageIndex stage);

int one_forward_one_backward_in_flight(const PipelineShape& shape, StageIndex stage);

}  // namespace strait::schedules

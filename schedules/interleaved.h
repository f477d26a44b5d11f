#pragma once

#include "schedules/action.h"
#include "schedules/pipeline_shape.h"

namespace strait::schedules {

// 1F1B for stages that hold several chunks each, so that data passes every stage several times.
// Filling and draining the pipeline takes one chunk's time per hop instead of a whole stage's: the
// bubble shrinks by the number of chunks, at the cost of as many times the messages and of more
// activations held.
//
// Micro-batches go in groups, each through all chunks before the next one begins. A group is as
// large as the way around the pipeline is long, S + depth * S / 2, so that what comes around is
// there when its turn comes; a remainder makes the groups a little larger, and there is one group
// where there are fewer micro-batches. Stage s of S fills with
//
//     min(V * M, (V - 1) * G + (2 + depth) * (S - 1 - s) + 1)
//
// forwards, V chunks and at most G micro-batches a group, which is also the most it ever holds;
// then one backward and one forward in turn. With one chunk it is 1F1B itself.
ActionList interleaved(const PipelineShape& shape, StageIndex stage);

// Passes of a micro-batch through a chunk that are held at once.
int interleaved_in_flight(const PipelineShape& shape, StageIndex stage);

}  // namespace strait::schedules

#pragma once

#include "schedules/action.h"
#include "schedules/pipeline_shape.h"

namespace strait::schedules {

// All passes of one kind of work through the chunks of a stage, the same on every stage: the
// micro-batches in so many groups of like size, each group through all chunks before the next one
// begins. Forwards take the chunks from first to last, backwards from last to first; micro-batches
// stand in index order in every chunk. With one chunk it is the micro-batches 0 to M-1.
ActionList grouped_passes(const PipelineShape& shape, Work work, int groups);

}  // namespace strait::schedules

#include "schedules/pipeline_shape.h"

#include <stdexcept>
#include <string>

namespace strait::schedules {

void check(const PipelineShape& shape, StageIndex stage) {
  const int s = number(stage);
  if (shape.stages >= 1 && shape.micro_batches >= 1 && shape.depth >= 0 && shape.chunks >= 1 &&
      shape.slices >= 1 && s >= 0 && s < shape.stages) {
    return;
  }
  throw std::invalid_argument(
      "no schedule for stage " + std::to_string(s) + " of " + std::to_string(shape.stages) +
      " stages of " + std::to_string(shape.chunks) + " chunks with " +
      std::to_string(shape.micro_batches) + " micro-batches of " + std::to_string(shape.slices) +
      " slices at depth " + std::to_string(shape.depth) +
      ": expected at least one stage, chunk, micro-batch and slice, a depth of 0 or more, and a "
      "stage counted from 0");
}

}  // namespace strait::schedules

#pragma once

#include "schedules/index.h"

namespace strait::schedules {

// All that a schedule needs to know of a run.
struct PipelineShape {
  int stages = 1;
  int micro_batches = 1;
  int depth = 0;  // further forwards in flight per hop, to hide slow links; gpipe has no use for it
};

// Throws std::invalid_argument, with the numbers, for a shape no pipeline can have (fewer than one
// stage or micro-batch, a negative depth) or a stage outside it.
void check(const PipelineShape& shape, StageIndex stage);

}  // namespace strait::schedules

#include "schedules/forward_only.h"

#include <algorithm>

#include "schedules/grouped_passes.h"

namespace strait::schedules {

ActionList forward_only(const PipelineShape& shape, StageIndex stage) {
  check(shape, stage);
  return grouped_passes(shape, Work::forward, std::max(1, shape.micro_batches / shape.stages));
}

}  // namespace strait::schedules

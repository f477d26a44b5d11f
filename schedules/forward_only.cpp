#include "schedules/forward_only.h"

namespace strait::schedules {

ActionList forward_only(const PipelineShape& shape, StageIndex stage) {
  check(shape, stage);
  ActionList list;
  list.reserve(static_cast<std::size_t>(shape.micro_batches));
  for (int m = 0; m < shape.micro_batches; ++m) {
    list.push_back({Work::forward, ChunkIndex{0}, MicroBatch{m}});
  }
  return list;
}

}  // namespace strait::schedules

#include "schedules/gpipe.h"

namespace strait::schedules {

ActionList gpipe(const PipelineShape& shape, StageIndex stage) {
  check(shape, stage);
  ActionList list;
  list.reserve(2 * static_cast<std::size_t>(shape.micro_batches));
  for (const Work work : {Work::forward, Work::backward}) {
    for (int m = 0; m < shape.micro_batches; ++m) {
      list.push_back({work, ChunkIndex{0}, MicroBatch{m}});
    }
  }
  return list;
}

int gpipe_in_flight(const PipelineShape& shape, StageIndex stage) {
  check(shape, stage);
  return shape.micro_batches;
}

}  // namespace strait::schedules

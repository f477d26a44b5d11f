#include "schedules/one_forward_one_backward.h"

#include <algorithm>
#include <cstdint>

namespace strait::schedules {

ActionList one_forward_one_backward(const PipelineShape& shape, StageIndex stage) {
  ActionList list;
  int next_forward = 0;
  const auto forward = [&] {
    list.push_back({Work::forward, ChunkIndex{0}, MicroBatch{next_forward++}});
  };
  const int fill = one_forward_one_backward_in_flight(shape, stage);
  list.reserve(2 * static_cast<std::size_t>(shape.micro_batches));
  while (next_forward < fill) forward();
  for (int m = 0; m < shape.micro_batches; ++m) {
    list.push_back({Work::backward, ChunkIndex{0}, MicroBatch{m}});
    if (next_forward < shape.micro_batches) forward();
  }
  return list;
}

int one_forward_one_backward_in_flight(const PipelineShape& shape, StageIndex stage) {
  check(shape, stage);
  const std::int64_t hops = shape.stages - 1 - number(stage);
  const std::int64_t wanted = hops + 1 + shape.depth * hops;
  return static_cast<int>(std::min<std::int64_t>(shape.micro_batches, wanted));
}

}  // namespace strait::schedules

#include "schedules/interleaved.h"

#include <algorithm>
#include <cstdint>

#include "schedules/grouped_passes.h"
#include "schedules/one_forward_one_backward.h"

namespace strait::schedules {
namespace {

// Smaller groups would not only wait: with a remainder of a single micro-batch, stages can
// deadlock.
int group_count(const PipelineShape& shape) {
  const std::int64_t stages = shape.stages;
  const std::int64_t around = stages + (shape.depth * stages + 1) / 2;
  return static_cast<int>(std::max<std::int64_t>(1, shape.micro_batches / around));
}

}  // namespace

ActionList interleaved(const PipelineShape& shape, StageIndex stage) {
  if (shape.chunks == 1) return one_forward_one_backward(shape, stage);
  const auto fill = static_cast<std::size_t>(interleaved_in_flight(shape, stage));
  const ActionList forwards = grouped_passes(shape, Work::forward, group_count(shape));
  const ActionList backwards = grouped_passes(shape, Work::backward, group_count(shape));
  ActionList list(forwards.begin(), forwards.begin() + static_cast<std::ptrdiff_t>(fill));
  list.reserve(forwards.size() + backwards.size());
  for (std::size_t i = 0; i < backwards.size(); ++i) {
    list.push_back(backwards[i]);
    if (fill + i < forwards.size()) list.push_back(forwards[fill + i]);
  }
  return list;
}

int interleaved_in_flight(const PipelineShape& shape, StageIndex stage) {
  if (shape.chunks == 1) return one_forward_one_backward_in_flight(shape, stage);
  check(shape, stage);
  const std::int64_t groups = group_count(shape);
  const std::int64_t largest = (shape.micro_batches + groups - 1) / groups;
  const std::int64_t hops = shape.stages - 1 - number(stage);
  const std::int64_t wanted =
      (shape.chunks - 1) * largest + (std::int64_t{2} + shape.depth) * hops + 1;
  const std::int64_t all = std::int64_t{shape.chunks} * shape.micro_batches;
  return static_cast<int>(std::min(all, wanted));
}

}  // namespace strait::schedules

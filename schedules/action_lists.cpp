#include "schedules/action_lists.h"

#include <algorithm>
#include <cstddef>

namespace strait::schedules {
namespace {

// All passes of one kind of work through the chunks of a stage; the same on every stage. The
// micro-batches form `groups` groups of similar size, and each group passes all chunks before the
// next one begins. Forwards take the chunks from first to last, backwards from last to first.
// Micro-batches are in index order in every chunk; with one chunk they are 0 to M-1.
ActionList grouped_passes(const PipelineShape& shape, Work work, int groups) {
  ActionList passes;
  passes.reserve(static_cast<std::size_t>(shape.chunks) *
                 static_cast<std::size_t>(shape.micro_batches));
  const auto begin_of = [&](std::int64_t group) {
    return static_cast<int>(group * shape.micro_batches / groups);
  };
  for (int group = 0; group < groups; ++group) {
    for (int i = 0; i < shape.chunks; ++i) {
      const int chunk = work == Work::forward ? i : shape.chunks - 1 - i;
      for (int m = begin_of(group); m < begin_of(group + 1); ++m) {
        passes.push_back({work, ChunkIndex{chunk}, MicroBatch{m}});
      }
    }
  }
  return passes;
}

// Smaller groups would do worse than wait: with a remainder of one micro-batch, stages can
// deadlock.
int group_count(const PipelineShape& shape) {
  const std::int64_t stages = shape.stages;
  const std::int64_t around = stages + (shape.depth * stages + 1) / 2;
  return static_cast<int>(std::max<std::int64_t>(1, shape.micro_batches / around));
}

}  // namespace

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

ActionList zero_bubble(const PipelineShape& shape, StageIndex stage) {
  const ActionList whole = one_forward_one_backward(shape, stage);
  const std::int64_t later = (std::int64_t{1} + shape.depth) * number(stage);
  ActionList list;
  list.reserve(3 * static_cast<std::size_t>(shape.micro_batches));
  const auto weight_gradient = [&](std::int64_t m) {
    list.push_back({Work::weight_gradient, ChunkIndex{0}, static_cast<MicroBatch>(m)});
  };
  for (const Action& action : whole) {
    list.push_back(action);
    if (action.work != Work::backward) continue;
    if (number(action.micro_batch) >= later) weight_gradient(number(action.micro_batch) - later);
  }
  for (std::int64_t m = std::max<std::int64_t>(0, shape.micro_batches - later);
       m < shape.micro_batches; ++m) {
    weight_gradient(m);
  }
  return list;
}

int zero_bubble_in_flight(const PipelineShape& shape, StageIndex stage) {
  check(shape, stage);
  return one_forward_one_backward_in_flight(shape, StageIndex{0});
}

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

ActionList forward_only(const PipelineShape& shape, StageIndex stage) {
  check(shape, stage);
  return grouped_passes(shape, Work::forward, std::max(1, shape.micro_batches / shape.stages));
}

}  // namespace strait::schedules

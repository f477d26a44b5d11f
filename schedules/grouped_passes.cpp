#include "schedules/grouped_passes.h"

#include <cstdint>

namespace strait::schedules {

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

}  // namespace strait::schedules

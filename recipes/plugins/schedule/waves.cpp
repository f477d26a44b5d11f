#include <strait/plugin.h>

#include <algorithm>

#include "schedules/schedule.h"

// GPipe in waves: a few forwards, then their backwards, then the next few. Holds a wave at a time
// where GPipe holds the whole step, and fills the pipeline anew for every wave.
namespace {

using namespace strait;
using schedules::ActionList;
using schedules::PipelineShape;
using schedules::Work;

int wave(const PipelineShape& shape, StageIndex stage) {
  schedules::check(shape, stage);
  return std::min(shape.micro_batches, 2 + shape.depth);
}

ActionList waves(const PipelineShape& shape, StageIndex stage) {
  const int length = wave(shape, stage);
  ActionList list;
  for (int first = 0; first < shape.micro_batches; first += length) {
    const int behind = std::min(first + length, shape.micro_batches);
    for (const Work work : {Work::forward, Work::backward}) {
      for (int m = first; m < behind; ++m) list.push_back({work, ChunkIndex{0}, MicroBatch{m}});
    }
  }
  return list;
}

void offer(Extensions& strait) {
  strait.schedule({"waves", "a few forwards, then their backwards", waves, wave});
}

}  // namespace

STRAIT_PLUGIN(offer)

#include <strait/plugin.h>

#include "schedules/schedule.h"

// Schedules that cannot be run.
namespace {

using namespace strait;
using schedules::Action;
using schedules::ActionList;
using schedules::PipelineShape;
using schedules::Work;

int all(const PipelineShape& shape, StageIndex) { return shape.micro_batches; }

Action action(Work work, int micro_batch) { return {work, ChunkIndex{0}, MicroBatch{micro_batch}}; }

// Stage 1 wants every input before it gives a gradient, stage 0 a gradient for its first.
ActionList stuck(const PipelineShape& shape, StageIndex stage) {
  ActionList list;
  for (int m = 0; m < shape.micro_batches; ++m) {
    list.push_back(action(Work::forward, m));
    if (number(stage) == 0) list.push_back(action(Work::backward, m));
  }
  for (int m = 0; number(stage) != 0 && m < shape.micro_batches; ++m) {
    list.push_back(action(Work::backward, m));
  }
  return list;
}

ActionList forgetful(const PipelineShape& shape, StageIndex) {
  ActionList list;
  for (int m = 0; m < shape.micro_batches; ++m) list.push_back(action(Work::forward, m));
  return list;
}

void offer(Extensions& strait) {
  strait.schedule({"stuck", "", stuck, all});
  strait.schedule({"forgetful", "", forgetful, all});
}

}  // namespace

STRAIT_PLUGIN(offer)

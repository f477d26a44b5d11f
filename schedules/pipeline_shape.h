#pragma once

#include "schedules/index.h"

namespace strait::schedules {

// The parameters of a run that a schedule depends on.
struct PipelineShape {
  int stages = 1;
  int micro_batches = 1;
  int depth = 0;   // additional forwards in flight per hop, to hide slow links; gpipe ignores it
  int chunks = 1;  // of the model, on every stage
  int slices = 1;  // of the rows of a micro-batch, each a pass of its own; see sliced()
};

// Throws std::invalid_argument, with the numbers, for an impossible shape (fewer than one stage,
// micro-batch or chunk, a negative depth) or a stage outside of it.
void check(const PipelineShape& shape, StageIndex stage);

// The order in which data passes the chunks of a pipeline: the first chunks of all stages, then
// from the last stage back to stage 0 and through their second chunks, and so on. Positions in this
// order are counted from 0.
constexpr int position_of(StageIndex stage, ChunkIndex chunk, int stages) {
  return number(chunk) * stages + number(stage);
}
constexpr StageIndex stage_at(int position, int stages) { return StageIndex{position % stages}; }
constexpr ChunkIndex chunk_at(int position, int stages) { return ChunkIndex{position / stages}; }

}  // namespace strait::schedules

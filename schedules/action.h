#pragma once

#include <limits>
#include <span>
#include <string>
#include <vector>

#include "schedules/index.h"

namespace strait::schedules {

enum class Work : std::uint8_t {
  forward,
  backward,         // the whole backward; if the list splits backwards, without the weight gradient
  weight_gradient,  // of the large weights; needs no other stage, and no stage waits for it
};

// One action of a stage. It includes receiving its input and sending its result; a schedule never
// names these.
struct Action {
  Work work = Work::forward;
  ChunkIndex chunk{};
  MicroBatch micro_batch{};

  bool operator==(const Action&) const = default;
};

// What one stage does in one step, in order. Plain data: any thread may read it.
//
// Every list contains the backwards of a chunk in the order of their micro-batches, 0 to M-1, and
// its weight gradients too. Gradients are floating-point sums, so with this order a pipelined run
// equals a one-stage run bit for bit, whatever the schedule.
using ActionList = std::vector<Action>;

// "forward 3"; with the chunk "forward 3 of chunk 1", unless the chunk is 0, which may be the only
// one.
std::string describe(const Action& action);

// Whether backwards of this chunk leave the weight gradients to separate actions.
bool splits_backward(const ActionList& list, ChunkIndex chunk);

// The list with each micro-batch in slices of its rows: what the list does with micro-batch m, this
// one does with m * slices to m * slices + slices - 1. Forwards take the slices in the order of the
// tokens, because attention needs the keys of earlier ones; backwards and weight gradients in the
// opposite order, because a key's gradient comes from the tokens after it.
ActionList sliced(const ActionList& list, int slices);

// The largest number of passes of a chunk that wait for their backwards at once.
int most_waiting(const ActionList& list, ChunkIndex chunk);

// Bytes that a pass of one micro-batch through a chunk holds.
struct PassBytes {
  std::int64_t forward = 0;          // from its forward to its backward
  std::int64_t weight_gradient = 0;  // from a split backward to its weight gradient
};

// The largest number of bytes that a stage holds at once; `bytes` by chunk. Of the passes of a
// chunk that wait for their backwards at most `most_waiting` count: the others are elsewhere.
std::int64_t most_held(const ActionList& list, std::span<const PassBytes> bytes,
                       int most_waiting = std::numeric_limits<int>::max());

}  // namespace strait::schedules

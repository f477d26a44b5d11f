#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "schedules/index.h"

namespace strait::schedules {

enum class Work : std::uint8_t {
  forward,
  backward,         // a whole one; in a list that splits backwards, without what is below
  weight_gradient,  // of the large weights; needs no other stage, and none waits for it
};

// One thing a stage does. Receiving the input before it and sending the result after it belong to
// the action; a schedule never names them.
struct Action {
  Work work = Work::forward;
  ChunkIndex chunk{};
  MicroBatch micro_batch{};

  bool operator==(const Action&) const = default;
};

// What one stage does in one step, in order. Plain data: any thread may read it.
//
// Every list keeps one promise beyond completeness: the backwards of a chunk stand in the order of
// their micro-batches, 0 to M-1, and so do its weight gradients. Gradients are floating-point sums,
// so this order is what makes a pipelined run equal a one-stage run bit for bit, whatever the
// schedule.
using ActionList = std::vector<Action>;

// "forward 3"; with the chunk, "forward 3 of chunk 1", unless it is the only one there can be, 0.
std::string describe(const Action& action);

// Whether backwards of this chunk leave the weight gradients to actions of their own.
bool splits_backward(const ActionList& list, ChunkIndex chunk);

// What a pass of one micro-batch through a chunk holds.
struct PassBytes {
  std::int64_t forward = 0;          // from its forward to its backward
  std::int64_t weight_gradient = 0;  // from a split backward to its weight gradient
};

// The most that a stage holds at once; `bytes` by chunk.
std::int64_t most_held(const ActionList& list, std::span<const PassBytes> bytes);

}  // namespace strait::schedules

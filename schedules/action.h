#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "schedules/index.h"

namespace strait::schedules {

enum class Work : std::uint8_t {
  forward,
  backward,         // the whole backward; the input gradient alone if the list splits backwards
  weight_gradient,  // the second half of a split backward
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
// their micro-batches, 0 to M-1. Gradients are floating-point sums, so this order is what makes a
// pipelined run equal a one-stage run bit for bit, whatever the schedule.
using ActionList = std::vector<Action>;

// "forward 3"; with the chunk, "forward 3 of chunk 1", unless it is the only one there can be, 0.
std::string describe(const Action& action);

// The most that a stage holds at once, where a pass through chunk c holds bytes[c] from its forward
// to its backward.
std::int64_t most_held(const ActionList& list, std::span<const std::int64_t> bytes);

}  // namespace strait::schedules

#pragma once

#include "framework/net/identity.h"

namespace strait::interleavings {

// Planted in the simulation's own part, to see that the exploration finds it.
enum class Mistake {
  none,
  undo_passed_round,          // regroup() gets that no round has passed
  keep_round,                 // regroup() gets that every round has passed
  apply_before_all_reported,  // a round that is complete here is applied without agreement
  report_incomplete_round,    // a process without all data reports that it has them
  forget_dropped_checkpoint,  // the coordinator does not withdraw a checkpoint of a former epoch
};

struct Case {
  std::string method = "allreduce";
  std::uint32_t replicas = 3;
  std::uint32_t stages = 1;
  int steps = 2;
  int checkpoint = 0;                                     // after so many steps, and after the last
  std::optional<std::uint32_t> arrives = std::nullopt;    // absent at first, joins at `checkpoint`
  std::optional<net::ProcessName> victim = std::nullopt;  // killed before an operation
  int operations = 0;                                     // of the victim before that
  bool sends_are_operations = false;  // a fault may come between two sends of a process, too
  bool reduced = true;                // leaves out orders that cannot differ
  Mistake mistake = Mistake::none;
};

}  // namespace strait::interleavings

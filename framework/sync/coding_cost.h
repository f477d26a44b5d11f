#pragma once

#include "framework/sync/methods.h"

namespace strait::sync {

// What a method costs a replica's processor in a step, on average, in times of copying the stage's
// weights once (4 bytes a value, on one thread).
struct CodingCost {
  double engine = 0;   // telling, folding and reading answers, beside the trainer
  double trainer = 0;  // landing, for which the trainer stands still, shared by its threads
};

// As tests/bench/coding_bench.cpp measured it; a method that is not known here is taken to cost
// what plain means do. Of the number of replicas it hardly depends: each folds its own part only.
CodingCost coding_cost(const SyncSettings& settings);

}  // namespace strait::sync

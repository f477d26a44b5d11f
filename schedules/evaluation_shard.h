#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace strait::schedules {

// Which micro-batches of an evaluation a replica computes. Replicas take them in turn, and one with
// twice the weight comes twice as often: after as many micro-batches as all weights together, each
// has had its own. Weights are above 0; equal ones give replica r every m with m % replicas == r.

// How many of `all` the replica `index` computes.
std::int64_t evaluation_micro_batches(std::int64_t all, std::span<const std::int64_t> weights,
                                      std::size_t index);
// The number, among all, of its micro-batch `own`.
std::int64_t evaluation_micro_batch(std::int64_t own, std::span<const std::int64_t> weights,
                                    std::size_t index);

}  // namespace strait::schedules

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "launcher/plan/plan.h"

namespace strait::plan {

// Checkpoints in memory (checkpoint.memory_every). All functions are pure.

// For each host another one that holds a second copy of what its processes save: the next one that
// has processes. Empty: there is no other, or the host has none.
std::vector<std::optional<std::size_t>> memory_neighbours(const Plan& plan);

// Bytes of checkpoints that a host holds in memory, at most: two of its own processes, because the
// newest is freed when the next one is whole, and two of each host whose neighbour it is.
std::int64_t held_bytes(const Plan& plan, std::size_t host);

}  // namespace strait::plan

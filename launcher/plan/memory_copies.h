#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "launcher/plan/plan.h"

namespace strait::plan {

// Checkpoints in memory (checkpoint.memory_every). All functions are pure.

// For each host, the host that holds a second copy of its checkpoints: the next one that has
// processes. Nullopt: no other host has processes, or this host has none.
std::vector<std::optional<std::size_t>> memory_neighbours(const Plan& plan);

// Upper limit of the bytes of checkpoints that a host holds in memory: two checkpoints of its own
// processes, because the newest is freed only when the next one is complete, and two of each host
// whose neighbour it is.
std::int64_t held_bytes(const Plan& plan, std::size_t host);

}  // namespace strait::plan

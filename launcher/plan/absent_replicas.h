#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "launcher/plan/plan.h"

namespace strait::plan {

// `--without R`: replicas that a run is to begin without, so that they can be added while it goes.
// Pure, all of it.

// UserError: why it cannot.
void check_can_begin_without(const Plan& plan, const std::vector<std::uint32_t>& replicas);

// Hosts that nobody but these replicas has a process on.
std::set<std::size_t> hosts_of_nobody_else(const Plan& plan,
                                           const std::set<std::uint32_t>& replicas);

// For whoever hears that these hosts cannot be reached: how to begin without them, as the end of a
// sentence; empty where that cannot be. `without`: those that are left out already.
std::string advice_to_begin_without(const Plan& plan, const std::set<std::uint32_t>& without,
                                    const std::vector<std::size_t>& hosts);

}  // namespace strait::plan

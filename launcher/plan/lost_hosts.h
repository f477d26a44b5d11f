#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <vector>

#include "launcher/plan/plan.h"

namespace strait::plan {

// How a run continues without hosts that were lost (hosts.restart). All functions are pure. A lost
// host becomes the last spare host: it may answer again later.

// The order in which spare hosts replace lost ones. The replica that misses fewest hosts comes
// first, so that as many replicas as possible are complete again. Replicas that the run does
// `without` are not counted; hosts on which only they run are last.
std::vector<std::size_t> replacement_order(const Plan& plan, const std::set<std::uint32_t>& without,
                                           std::set<std::size_t> lost);

// Replaces a host by a spare one (an index into hosts.spare). Processes, layers, threads and links
// stay, so the run computes the same bits.
void replace_host(Plan& plan, std::size_t host, std::size_t spare);

// The recipe of the same run on the remaining hosts: as many stages as they have slots for, or had
// processes of. Nullopt: less than one stage per replica is left.
std::optional<recipe::Recipe> recipe_without(const Plan& plan, const std::set<std::size_t>& lost);

}  // namespace strait::plan

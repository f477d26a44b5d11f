#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <vector>

#include "launcher/plan/plan.h"

namespace strait::plan {

// How a run goes on without hosts that were lost (hosts.restart). All functions are pure. A host
// that was lost becomes the last of the spare ones: it may answer again one day.

// Lost hosts in the order in which spare ones take their places: first those of the replica that
// misses fewest, so that as many replicas as possible are whole again. Those of replicas that the
// run does `without` are not counted; hosts on which nothing else runs are last.
std::vector<std::size_t> replacement_order(const Plan& plan, const std::set<std::uint32_t>& without,
                                           std::set<std::size_t> lost);

// Puts a spare host (an index into hosts.spare) in the place of another one. Processes, layers,
// threads and links stay, so the run has the same bits.
void replace_host(Plan& plan, std::size_t host, std::size_t spare);

// The recipe of the same run on the other hosts: as many stages as these have slots for, or had
// processes of. Absent: not one stage of each replica is left.
std::optional<recipe::Recipe> recipe_without(const Plan& plan, const std::set<std::size_t>& lost);

}  // namespace strait::plan

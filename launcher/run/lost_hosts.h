#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "launcher/plan/plan.h"

namespace strait::run {

// How a run continues without hosts that were lost (hosts.restart), or starts without replicas. All
// functions are pure. A lost host becomes the last spare host: it may answer again later.

// The order in which spare hosts replace lost ones. The replica that misses fewest hosts comes
// first, so that as many replicas as possible are complete again. Replicas that the run does
// `without` are not counted; hosts on which only they run are last.
std::vector<std::size_t> replacement_order(const plan::Plan& plan,
                                           const std::set<std::uint32_t>& without,
                                           std::set<std::size_t> lost);

// Replaces a host by a spare one (an index into hosts.spare). Processes, layers, threads and links
// stay, so the run computes the same bits.
void replace_host(plan::Plan& plan, std::size_t host, std::size_t spare);

// The recipe of the same run on the remaining hosts: as many stages as they have slots for, or had
// processes of. Nullopt: less than one stage per replica is left.
std::optional<recipe::Recipe> recipe_without(const plan::Plan& plan,
                                             const std::set<std::size_t>& lost);

// ---- `--without R`: replicas that a run starts without; they can be added while it runs. All
// functions are pure.

// UserError with the reason why the run cannot start without these replicas.
void check_can_start_without(const plan::Plan& plan, const std::vector<std::uint32_t>& replicas);

// Hosts on which only these replicas have processes.
std::set<std::size_t> hosts_only_of(const plan::Plan& plan,
                                    const std::set<std::uint32_t>& replicas);

// Replicas with a process on a lost host, if the run can continue without them and without those
// left out already; else empty.
std::set<std::uint32_t> replicas_to_leave_out(const plan::Plan& plan,
                                              const std::set<std::uint32_t>& without,
                                              const std::set<std::size_t>& lost);

// The end of an error message about unreachable hosts: how to start without them. Empty if that is
// impossible. `without`: replicas that are left out already.
std::string advice_to_start_without(const plan::Plan& plan, const std::set<std::uint32_t>& without,
                                    const std::set<std::size_t>& lost);

}  // namespace strait::run

#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "launcher/plan/plan.h"

namespace strait::plan {

// `--without R`: replicas that a run starts without; they can be added while it runs. All functions
// are pure.

// UserError with the reason why the run cannot start without these replicas.
void check_can_start_without(const Plan& plan, const std::vector<std::uint32_t>& replicas);

// Hosts on which only these replicas have processes.
std::set<std::size_t> hosts_only_of(const Plan& plan, const std::set<std::uint32_t>& replicas);

// Replicas with a process on a lost host, if the run can continue without them and without those
// left out already; else empty.
std::set<std::uint32_t> replicas_to_leave_out(const Plan& plan,
                                              const std::set<std::uint32_t>& without,
                                              const std::set<std::size_t>& lost);

// The end of an error message about unreachable hosts: how to start without them. Empty if that is
// impossible. `without`: replicas that are left out already.
std::string advice_to_start_without(const Plan& plan, const std::set<std::uint32_t>& without,
                                    const std::set<std::size_t>& lost);

}  // namespace strait::plan

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

// Replicas that a lost host has a process of, where the run can do without them and those that are
// left out already; else none.
std::set<std::uint32_t> replicas_to_leave_out(const Plan& plan,
                                              const std::set<std::uint32_t>& without,
                                              const std::set<std::size_t>& lost);

// The end of an error message about unreachable hosts: how to start without them. Empty where that
// is impossible. `without`: replicas that are left out already.
std::string advice_to_start_without(const Plan& plan, const std::set<std::uint32_t>& without,
                                    const std::set<std::size_t>& lost);

}  // namespace strait::plan

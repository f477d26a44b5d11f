#pragma once

#include <cstddef>
#include <string>

#include "launcher/plan/plan.h"

namespace strait::plan {

// Threads beyond a host's cores wait for each other, so all compute slower than fewer threads
// would. Hosts that have not reported their cores are not checked. Both functions are pure.

// UserError (bad_input): the recipe gives each process more threads than the host has cores.
void check_threads(const Plan& plan, std::size_t host);
// The same for a run that has begun, whose bits depend on its threads: what keeping them costs.
// Empty: nothing.
std::string thread_warning(const Plan& plan, std::size_t host);

}  // namespace strait::plan

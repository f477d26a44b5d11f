#pragma once

#include "launcher/hosts/host_facts.h"
#include "launcher/recipe/plan.h"
#include "launcher/run/control_message.h"

namespace strait::run {

// Writes cores, GPUs, threads and memory of the hosts into the plan. `facts` by host, valid for
// those in `there`; processes on other hosts get the threads of another process of their stage,
// because the plan does not change when these hosts join later. Returns warnings. UserError:
// check_memory().
std::vector<Event> amend_by_facts(plan::Plan& plan, const std::vector<hosts::HostFacts>& facts,
                                  const std::vector<std::size_t>& there);

// UserError: by the plan the host's stages need more memory than the host or one of its GPUs has
// for them. A memory of 0 bytes is not known and counts as enough.
void check_memory(const plan::Plan& plan, std::size_t host, const hosts::HostFacts& facts);
// The same check for a run on this machine; other facts of it cannot differ from the plan.
void amend_by_this_machine(plan::Plan& plan);

}  // namespace strait::run

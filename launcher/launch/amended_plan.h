#pragma once

#include <cstddef>
#include <vector>

#include "launcher/control/control_message.h"
#include "launcher/hosts/host_facts.h"
#include "launcher/plan/plan.h"

namespace strait::launch {

// What hosts said of themselves, against what the plan took them for: cores, threads and memory go
// into the plan. `facts` by host, of those that are `there`; processes on others are taken to be
// like those of their stage that are here, for the plan stays as it is when they come. What is
// worth a word, and UserError as check_memory().
std::vector<control::Event> amend_by_facts(plan::Plan& plan, const std::vector<hosts::HostFacts>& facts,
                                  const std::vector<std::size_t>& there);

// UserError: by the plan the host's stages need more memory than it has for them.
void check_memory(const plan::Plan& plan, std::size_t host, const hosts::HostFacts& facts);

}  // namespace strait::launch

#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <set>
#include <vector>

#include "launcher/hosts/agent_starter.h"
#include "launcher/plan/plan.h"

namespace strait::hosts {

// Starters for the hosts of the plan, as its backend needs them; in the order of plan.hosts, null
// for hosts that are `left_out`. `run` is the run's directory.
std::vector<std::unique_ptr<AgentStarter>> make_agent_starters(
    const plan::Plan& plan, const std::filesystem::path& run,
    const std::set<std::size_t>& left_out);

// While the run goes: for a host that has no agent, or has lost it. UserError: the backend cannot
// start agents in a running run.
std::unique_ptr<AgentStarter> agent_starter_in_run(const plan::Plan& plan, std::size_t host);

}  // namespace strait::hosts

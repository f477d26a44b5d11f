#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <set>
#include <vector>

#include "launcher/hosts/agent_starter.h"
#include "launcher/plan/plan.h"

namespace strait::hosts {

// The way to every host of the plan, as its backend has it; in the order of plan.hosts, null for
// those that are `left_out`. `run` is the run's directory.
std::vector<std::unique_ptr<AgentStarter>> make_agent_starters(const plan::Plan& plan,
                                                  const std::filesystem::path& run,
                                                  const std::set<std::size_t>& left_out);

// While the run goes: to a host that has no keeper (any more). UserError where the backend knows no
// such way.
std::unique_ptr<AgentStarter> agent_starter_in_run(const plan::Plan& plan, std::size_t host);

}  // namespace strait::hosts

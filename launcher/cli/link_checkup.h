#pragma once

#include "launcher/hosts/diagnostics.h"
#include "launcher/recipe/plan.h"
#include "launcher/run/run_hosts.h"

namespace strait::cli {

// Results about the routes of the plan's links: blocked hosts, relays, clocks that are off. Pure.
std::vector<hosts::CheckResult> judge_links(const plan::Plan& plan,
                                            const std::vector<hosts::LinkRoute>& routes,
                                            const std::vector<run::Event>& notes);

// Starts the agents of the plan's hosts, lets each pair that shares a link try its paths as a run
// does, and ends the agents. Not for a local plan.
std::vector<hosts::CheckResult> check_links(const plan::Plan& plan);

}  // namespace strait::cli

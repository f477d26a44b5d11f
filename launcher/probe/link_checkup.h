#pragma once

#include <vector>

#include "launcher/host/checkup.h"
#include "launcher/plan/plan.h"
#include "launcher/run/run_hosts.h"

namespace strait::launcher {

// How the plan's links between hosts were found to be laid: who lets whom in, who has to be
// relayed, whose clock is off. Pure but for looking.
std::vector<Symptom> judge_links(const Plan& plan, const std::vector<LinkRoute>& routes,
                                 const std::vector<Event>& notes);

// Brings the plan's hosts up, has each try every other one that it shares a link with, as a run
// does, and leaves them. Not for a local plan.
std::vector<Symptom> check_links(const Plan& plan);

}  // namespace strait::launcher

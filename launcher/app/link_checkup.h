#pragma once

#include <vector>

#include "launcher/hosts/checkup.h"
#include "launcher/plan/plan.h"
#include "launcher/launch/run_hosts.h"

namespace strait::app {

// How the plan's links between hosts were found to be laid: who lets whom in, who has to be
// relayed, whose clock is off. Pure but for looking.
std::vector<hosts::Symptom> judge_links(const plan::Plan& plan, const std::vector<reach::LinkRoute>& routes,
                                 const std::vector<control::Event>& notes);

// Brings the plan's hosts up, has each try every other one that it shares a link with, as a run
// does, and leaves them. Not for a local plan.
std::vector<hosts::Symptom> check_links(const plan::Plan& plan);

}  // namespace strait::app

#pragma once

#include <string>

#include "launcher/plan/plan.h"

namespace strait::planner {

// What `strait plan` prints: the model and the schedule, then tables of processes, links, caches
// and sync methods, then the forecast of a step.
std::string plan_text(const plan::Plan& plan);

}  // namespace strait::planner

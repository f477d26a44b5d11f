#pragma once

#include <cstddef>
#include <string>

#include "launcher/plan/plan.h"

namespace strait::planner {

// What `strait plan` prints: the model and the schedule, then tables of processes, links, caches
// and sync methods, for a screen of that width (base::table_lines), then the forecast of a step.
std::string plan_text(const plan::Plan& plan, std::size_t columns = 0);

// The layout that "auto" chose, and the next best ones. Empty: the recipe states the layout.
std::string layout_table(const plan::Plan& plan, std::size_t columns);

// Its last lines: how long a step and all steps take, and with which speeds.
std::string forecast_text(const plan::Plan& plan);

}  // namespace strait::planner

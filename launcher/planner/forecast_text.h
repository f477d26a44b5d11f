#pragma once

#include <string>

#include "launcher/plan/plan.h"

namespace strait::planner {

// The last lines of `strait plan`: how long a step and all steps take, and with which speeds.
std::string forecast_text(const plan::Plan& plan);

}  // namespace strait::planner

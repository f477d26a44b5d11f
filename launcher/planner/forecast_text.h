#pragma once

#include <string>

#include "launcher/plan/plan.h"

namespace strait::planner {

// How long a step and all steps take, and with which speeds: the last lines of `strait plan`.
std::string forecast_text(const plan::Plan& plan);

}  // namespace strait::planner

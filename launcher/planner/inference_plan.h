#pragma once

#include "launcher/plan/plan.h"

namespace strait::planner {

// The plan for asking the model: the first replica's stages on the same hosts. Data, other replicas
// and all links except boundaries are left out, as are hosts without a stage. Pure.
plan::Plan inference_plan(const plan::Plan& trained);

}  // namespace strait::planner

#pragma once

#include "launcher/plan/plan.h"

namespace strait::planner {

// A plan's first replica, to ask its model: the same stages on the same hosts, without what only
// training needs (data, other replicas, links but the boundaries'). Hosts that have no stage then
// are left out. Pure.
plan::Plan inference_plan(const plan::Plan& trained);

}  // namespace strait::planner

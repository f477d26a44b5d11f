#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "framework/sync/layout.h"
#include "framework/sync/methods.h"
#include "framework/sync/sync_settings.h"
#include "launcher/plan/plan.h"
#include "launcher/recipe/recipe.h"
#include "models/model_description.h"

namespace strait::planner {

// A recipe's [sync] in the words of the room that does it, for a run of so many steps. `method` is
// a name and never "auto"; a method that the recipe does not ask for gets its authors' settings.
sync::SyncSettings sync_settings(const recipe::Recipe& recipe, const std::string& method,
                                 std::int64_t steps);
// Of a method that has strengths; nothing: it has none.
std::optional<sync::Strength> strength_of(const sync::SyncSettings& settings);

// What this process would send in a step to the other replicas of its stage if all of its weights
// were reduced in bfloat16; 0 for one replica. What real bytes are compared with.
std::uint64_t bfloat16_sync_bytes(const plan::Plan& plan, net::ProcessName process);

// The part of a plan that is about replicas: which method, what each process keeps for it, and the
// links between replicas. Processes and steps are planned by then. With one replica: nothing.
// A method that is chosen stays what it was in the plan that the run goes on from, where there is
// one (`before`): what replicas keep is of use to that method only.
// UserError where the recipe's settings do not go together.
void plan_sync(plan::Plan& plan, const models::ModelDescription& model, const plan::Plan* before = nullptr);

}  // namespace strait::planner

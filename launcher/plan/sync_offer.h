#pragma once

#include <string>
#include <vector>

#include "launcher/plan/plan.h"
#include "models/model_description.h"

namespace strait::launcher {

// What each sync method would send and cost in this plan, whose processes, boundaries and steps are
// there. Time is that of links and of waiting: what coding costs is not in it.
std::vector<Plan::SyncOffer> sync_offers(const Plan& plan, const models::ModelDescription& model);

// `method = "auto"`: of those that hide behind the step, the one whose updates are worth most;
// where none hides, the one that costs least time.
std::string choose_sync(const std::vector<Plan::SyncOffer>& offers);

}  // namespace strait::launcher

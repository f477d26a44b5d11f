#pragma once

#include <string>
#include <vector>

#include "launcher/plan/plan.h"
#include "models/model_description.h"

namespace strait::launcher {

// What each sync method would send and cost in this plan, whose processes, boundaries and steps are
// there; cocktail in all strengths that "auto" may choose from, where that is asked for. Time is
// that of links, of waiting and of coding.
std::vector<Plan::SyncOffer> sync_offers(const Plan& plan, const models::ModelDescription& model);

// `method = "auto"`: of those that hide behind the step, the one whose updates are worth most, and
// of the strengths of one method the freshest; where none hides, the one that costs least time.
// There is at least one offer.
Plan::SyncOffer choose_sync(const std::vector<Plan::SyncOffer>& offers);

}  // namespace strait::launcher

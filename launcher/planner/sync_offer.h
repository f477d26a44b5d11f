#pragma once

#include <string>
#include <vector>

#include "launcher/plan/plan.h"
#include "models/model_description.h"

namespace strait::planner {

// What each sync method would send and cost in this plan, whose processes, boundaries and steps are
// there; a method with strengths in all that "auto" may choose from, where that is asked for. Time
// is that of links, of waiting, of coding and of the vote.
std::vector<plan::Plan::SyncOffer> sync_offers(const plan::Plan& plan,
                                               const models::ModelDescription& model);

// What every step waits for with every method: each head's word on it has to reach all others. And
// how many times longer than without replicas a step is by that alone.
double vote_seconds(const plan::Plan& plan);
double vote_slowdown(const plan::Plan& plan);

// `method = "auto"`: of those that hide behind the step, the one whose updates are worth most, and
// of the strengths of one method the freshest; where none hides, the one that costs least time.
// There is at least one offer; with none a step is less than so many times longer.
plan::Plan::SyncOffer choose_sync(const std::vector<plan::Plan::SyncOffer>& offers,
                                  double at_the_least = 1);

}  // namespace strait::planner

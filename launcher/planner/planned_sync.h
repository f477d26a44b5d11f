#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "framework/sync/layout.h"
#include "framework/sync/methods.h"
#include "framework/sync/sync_settings.h"
#include "launcher/plan/plan.h"
#include "launcher/recipe/recipe.h"
#include "models/model_description.h"

namespace strait::planner {

// The [sync] of a recipe as settings of framework/sync, for a run of so many steps. `method` is a
// name and never "auto"; a method that is not that of the recipe gets the defaults of its authors.
sync::SyncSettings sync_settings(const recipe::Recipe& recipe, const std::string& method,
                                 std::int64_t steps);
// The strength of these settings; nothing: the method has no strengths.
std::optional<sync::Strength> strength_of(const sync::SyncSettings& settings);

// Bytes that this process would send in a step if all that it trains were reduced in bfloat16; 0
// with one replica. The baseline of compression ratios.
std::uint64_t bfloat16_sync_bytes(const plan::Plan& plan, net::ProcessName process);

// Plans what concerns replicas: the method, its state in each process, and the links between
// replicas. Needs processes and steps. No effect with one replica. A method that "auto" chose stays
// that of `before`, the plan from which the run resumes, unless that names none: the state of
// replicas is of use to that method only. UserError: settings of the recipe contradict each other.
void plan_sync(plan::Plan& plan, const models::ModelDescription& model,
               const plan::Plan* before = nullptr);

// ---- checks

// Checks the settings of [sync] together and with the length of the run; single keys are checked by
// the reader of recipes. UserError (bad_input) with keys, values, origins and what to do. Not for
// "auto".
void check_sync_settings(const plan::Plan& plan);

// Checks `sync.on_loss` with the method of the plan, including one that "auto" chose, and with
// sync.group.
void check_loss_rule(const plan::Plan& plan);
void check_group(const plan::Plan& plan);

// ---- forecasts

// Forecasts a step with each sync method; for "auto" in all strengths that it can choose from.
// Needs processes, boundaries and steps. Includes the time of links, waiting, coding and the
// consensus round.
std::vector<plan::Plan::SyncOffer> sync_offers(const plan::Plan& plan,
                                               const models::ModelDescription& model);

// The one of the plan's method; null: it is not among them, or there is one replica.
const plan::Plan::SyncOffer* chosen_offer(const plan::Plan& plan);

// The consensus round of a step, with any method: the message of each first stage has to reach all
// others. In seconds, and as the ratio of the durations of a step with and without it.
double consensus_seconds(const plan::Plan& plan);
double consensus_slowdown(const plan::Plan& plan);

// `method = "auto"`: among offers that do not slow down the step, the one of the best rank, and of
// the strengths of one method the least stale; if all slow it down, the fastest. `offers` is not
// empty. `at_the_least`: slowdown of the consensus round, which every offer contains.
plan::Plan::SyncOffer choose_sync(const std::vector<plan::Plan::SyncOffer>& offers,
                                  double at_the_least = 1);

}  // namespace strait::planner

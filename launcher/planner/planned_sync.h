#pragma once

#include "framework/sync/layout.h"
#include "framework/sync/methods.h"
#include "framework/sync/sync_settings.h"
#include "launcher/recipe/plan.h"
#include "launcher/recipe/recipe.h"
#include "models/model_description.h"

namespace strait::planner {

// The [sync] of a recipe as settings of framework/sync, for a run of this number of steps. `method`
// is a name, never "auto". A method other than the recipe's gets the defaults of its authors.
sync::SyncSettings sync_settings(const recipe::Recipe& recipe, const std::string& method,
                                 std::int64_t steps);
// The strength in these settings. Nullopt: the method has no strengths.
std::optional<sync::Strength> strength_of(const sync::SyncSettings& settings);

// Bytes that this process would send over links in a step if everything that it trains were reduced
// in bfloat16; 0 with one replica, and where another one of its group exchanges with other groups.
// The baseline of compression ratios.
std::uint64_t bfloat16_sync_bytes(const plan::Plan& plan, net::ProcessName process);

// Plans the replicas: the method, its state in each process, and the links between replicas. Needs
// processes and steps. Does nothing with one replica. A method that "auto" chose stays that of
// `before`, the plan of the run that is resumed, because only that method can use the state of
// replicas. UserError: settings of the recipe contradict each other.
void plan_sync(plan::Plan& plan, const models::ModelDescription& model,
               const plan::Plan* before = nullptr);

// ---- checks

// Checks the settings of [sync] together and with the length of the run; the reader of recipes
// checks single keys. UserError (bad_input) with keys, values, origins and a remedy. Not for
// "auto".
void check_sync_settings(const plan::Plan& plan);

// Checks `sync.on_loss` against the plan's method, which "auto" may have chosen, and against
// sync.group.
void check_loss_rule(const plan::Plan& plan);
// Moments of few bits, or of some parameters, are not the method's to change.
// In each replica both of every parameter, in float32.
bool has_all_moments(const recipe::Recipe& recipe);
bool changes_moments(const plan::Plan& plan, const std::string& method);
void check_moments(const plan::Plan& plan);
// Whether replicas may have unequal numbers of rows with this method: it sums gradients, or weighs
// their contributions.
bool allows_unequal_rows(const std::string& method);
void check_unequal_rows(const plan::Plan& plan);
void check_group(const plan::Plan& plan);

// ---- forecasts

// Forecasts a step with each sync method; for "auto" in all strengths that it can choose from.
// Needs processes, boundaries and steps. Includes the time of links, waiting, coding and the
// consensus round.
std::vector<plan::Plan::SyncOffer> sync_offers(const plan::Plan& plan,
                                               const models::ModelDescription& model);

// The offer of the plan's method. Null: it is not among them, or there is one replica.
const plan::Plan::SyncOffer* chosen_offer(const plan::Plan& plan);

// What replicas add to a step: sync, which contains the consensus round, or that round alone.
double sync_seconds(const plan::Plan& plan);

// The consensus round of a step: each first stage's message has to reach all others. 0 if replicas
// train apart with the plan's method. In seconds, and as the ratio of step durations with and
// without it.
double consensus_seconds(const plan::Plan& plan);
double consensus_slowdown(const plan::Plan& plan);

// Whether replicas train apart with this method, so that no step waits for their consensus: they
// read what others propose some steps later. `method` is a name, never "auto".
bool trains_apart(const plan::Plan& plan, const std::string& method);

// `method = "auto"`: of the offers that do not slow down the step, the one with the best rank, and
// of one method's strengths the least stale. If all slow it down, the fastest. `offers` is not
// empty. `at_the_least`: slowdown by the consensus round, which is no reason against those that
// wait.
plan::Plan::SyncOffer choose_sync(const std::vector<plan::Plan::SyncOffer>& offers,
                                  double at_the_least = 1);

}  // namespace strait::planner

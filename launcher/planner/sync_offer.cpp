#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "framework/sync/forecast.h"
#include "framework/sync/methods.h"
#include "launcher/base/cores.h"
#include "launcher/planner/planned_group.h"
#include "launcher/planner/planned_sync.h"
#include "launcher/planner/step_forecast.h"
#include "launcher/recipe/recipe_sync_keys.h"
#include "stages/stage_layout.h"

namespace strait::planner {
namespace {

// Sync counts as free up to this slowdown.
constexpr double kHidden = 1.05;
// The rounds of a method repeat within this number of steps. Only the last steps of the run are
// examined, because the first rounds can differ (warm-up).
constexpr std::int64_t kStepsLookedAt = 1024;

struct RoundTime {
  sync::Hook hook = sync::Hook::update;
  std::int64_t late = 0;
  // One-way latencies that follow each other: of each exchange, and of the confirmation.
  std::int64_t trips = 0;
};

// An exchange with a result takes two one-way latencies; one without takes one.
RoundTime round_time_of(sync::Hook hook, const sync::RoundPlan& plan) {
  const bool answered = plan.pattern == sync::Pattern::shard_reduce;
  return {hook, plan.late, (answered ? 2 : 1) * plan.exchanges + 1};
}

// When the method's regular rounds start and are applied. The last step of a run often has its own
// round, which nothing hides; it counts only if there is no other.
RoundTime round_time(const sync::SyncMethod& method, const sync::Layout& layout,
                     std::size_t members, std::int64_t steps) {
  sync::Membership membership;
  for (std::uint32_t i = 0; i < members; ++i) membership.members.push_back(i);
  std::optional<RoundTime> time;
  const std::int64_t first = std::max<std::int64_t>(steps - 1 - kStepsLookedAt, 0);
  for (std::int64_t step = first; step < steps; ++step) {
    if (time && step + 1 == steps) break;
    for (const sync::Hook hook : {sync::Hook::gradient, sync::Hook::clipped, sync::Hook::update}) {
      const auto plan = method.plan({static_cast<store::Step>(step), hook}, layout, membership);
      if (plan) time = round_time_of(hook, *plan);
    }
  }
  return time.value_or(RoundTime());
}

// Bytes to the adjacent stages, which share the uplink of this process.
double boundary_bytes_of(const plan::Plan& plan, net::ProcessName process) {
  std::int64_t bytes = 0;
  for (const plan::Plan::Link& link : plan.links) {
    if (link.connects == process) bytes += link.forward_bytes;
    if (link.listens == process) bytes += link.backward_bytes;
  }
  return static_cast<double>(bytes);
}

// The narrowest path from this process to its peers, because all of its links share one uplink.
double uplink_bytes_per_second(const plan::Plan& plan, const plan::Plan::Process& process) {
  double rate = std::numeric_limits<double>::infinity();
  for (const plan::Plan::Process& other : plan.processes) {
    const bool sibling = other.name.stage == process.name.stage;
    const bool adjacent = other.name.replica == process.name.replica;
    if (other.name == process.name || !(sibling || adjacent)) continue;
    rate = std::min(rate,
                    plan::path_speed(plan, process.host_index, other.host_index).bytes_per_second);
  }
  return rate;
}

// A step without sync. The links of a process share its uplink, which may take longest.
double seconds_without(const plan::Plan& plan) {
  double seconds = plan.step_seconds;
  for (const plan::Plan::Process& process : plan.processes) {
    seconds = std::max(
        seconds, boundary_bytes_of(plan, process.name) / uplink_bytes_per_second(plan, process));
  }
  return seconds;
}

// The largest one-way latency between two replicas of a stage.
double sibling_seconds(const plan::Plan& plan, std::uint32_t stage) {
  double seconds = 0;
  for (const plan::Plan::Process& one : plan.processes) {
    if (one.name.stage != stage) continue;
    for (const plan::Plan::Process& other : plan.processes) {
      if (other.name.stage != stage || other.name.replica == one.name.replica) continue;
      seconds = std::max(seconds, plan::path_speed(plan, one.host_index, other.host_index).seconds);
    }
  }
  return seconds;
}

// Seconds of a step's consensus round with this method. One latency: first stages send at the same
// time, or in turns, which takes the same time on average. Replicas that train apart read what
// others send some steps later, so none waits.
double consensus_with(const plan::Plan& plan, const std::string& method) {
  const bool apart =
      !method.empty() && plan.recipe.sync.on_loss == recipe::LossRule::stop &&
      groups_with(plan, method, 0).front().size() == 1 &&
      sync::make_method(sync_settings(plan.recipe, method, plan.steps))->traits.trains_apart;
  return apart ? 0 : sibling_seconds(plan, 0);
}

// Seconds of a step that hide a round.
double window(const plan::Plan& plan, const models::ModelDescription& model,
              const plan::Plan::Process& process, const RoundTime& time,
              const std::string& method) {
  if (time.late > 0) {
    // A result is applied after the consensus round of a step. If replicas can be lost, that round
    // first finds out which ones have the result, so one consensus round less hides it.
    const bool confirms = plan.recipe.sync.on_loss == recipe::LossRule::continue_run;
    const std::int64_t rounds = time.late - (confirms ? 1 : 0);
    return static_cast<double>(time.late) * plan.step_seconds +
           static_cast<double>(rounds) * consensus_with(plan, method);
  }
  if (time.hook != sync::Hook::gradient) return 0;
  // Gradients are sent while the backward of the last micro-batch computes the remaining ones.
  const std::int64_t tokens = plan.micro_batch_rows() * plan.recipe.data.row;
  const plan::ComputeSpeed speed = plan::compute_speed(plan, process);
  // With several chunks only the first one counts: the others finish before it.
  return chunk_cost(model, process.chunks.front(), tokens, speed).backward_seconds;
}

// The share of background coding that delays computation: 1 if the threads of the host's processes
// use all cores, 0 if each process has a spare core. Computing threads wait for each other, so
// interrupting one delays all.
double delay_by_coding(const plan::Plan& plan, const plan::Plan::Process& process) {
  std::int64_t processes = 0;
  std::int64_t threads = 0;
  for (const plan::Plan::Process& each : plan.processes) {
    if (each.host_index != process.host_index) continue;
    ++processes;
    threads += each.threads;
  }
  const std::int64_t known = plan.hosts.at(process.host_index).cores;
  const std::int64_t cores = known > 0 ? known : base::usable_cores();
  const auto spare = static_cast<double>(std::max<std::int64_t>(cores - threads, 0));
  return 1 - std::min(spare / static_cast<double>(processes), 1.0);
}

// Seconds that a method's rounds add to a step: waiting, applying the result, and computation that
// coding delays. `hiding`: seconds of compute that hide a round.
double added_seconds(const plan::Plan& plan, const plan::Plan::Process& process,
                     const sync::Forecast& costs, const sync::CodingCost& coding, double values,
                     const RoundTime& time, double hiding) {
  if (costs.round_bytes <= 0) return 0;
  // Gradients have a round in every step, whose mean bytes are below those of the largest round.
  const bool of_updates = time.hook == sync::Hook::update;
  const double rounds = of_updates ? costs.step_bytes / costs.round_bytes : 1;
  const double copy = values * sizeof(float) / plan::copy_speed(plan, process.host_index);
  const double coded = coding.engine * copy / rounds;
  const double latency = sibling_seconds(plan, process.name.stage);
  const double travels = costs.step_bytes / rounds / uplink_bytes_per_second(plan, process);
  const double trips = static_cast<double>(time.trips) * latency;
  // The last gradient is sent after the backward, so nothing hides its latencies.
  const double hidden = of_updates ? trips : 0;
  const double waited = std::max(coded + travels + hidden - hiding, 0.0) + (trips - hidden);
  const double delayed = std::min(coded, hiding) * delay_by_coding(plan, process);
  return rounds * (waited + delayed) + coding.trainer * copy / static_cast<double>(process.threads);
}

// The same for rounds with this number of members. A sum in a group is assumed to cost as much as
// coding, because memory is several times as fast as links.
double added_by(const plan::Plan& plan, const models::ModelDescription& model,
                const plan::Plan::Process& process, const sync::SyncSettings& settings,
                std::size_t members) {
  if (members < 2) return 0;
  const sync::Layout layout = stages::stage_layout(model, process.chunks);
  const auto method = sync::make_method(settings);
  const RoundTime time = round_time(*method, layout, members, plan.steps);
  return added_seconds(plan, process, sync::forecast(settings, layout, members),
                       sync::coding_cost(settings), static_cast<double>(layout.size()), time,
                       window(plan, model, process, time, settings.method));
}

plan::Plan::SyncOffer offer_of(const plan::Plan& plan, const models::ModelDescription& model,
                               const sync::SyncSettings& settings) {
  plan::Plan::SyncOffer offer;
  offer.method = settings.method;
  offer.strength = strength_of(settings);
  const double without = seconds_without(plan);
  const double with_consensus = without + consensus_with(plan, settings.method);
  offer.step_seconds = with_consensus;
  for (const plan::Plan::Process& process : plan.processes) {
    if (process.name.replica != 0) continue;
    const sync::Layout layout = stages::stage_layout(model, process.chunks);
    // The first replica of a group leads it.
    const sync::ReplicaGroups groups = groups_with(plan, settings.method, process.name.stage);
    const sync::Forecast costs = sync::forecast(settings, layout, groups, 0);
    const double added =
        added_by(plan, model, process, settings, groups.size()) +
        added_by(plan, model, process, sync::settings_in_group(settings), groups.front().size());
    const double on_the_wire = (boundary_bytes_of(plan, process.name) + costs.step_bytes) /
                               uplink_bytes_per_second(plan, process);
    offer.step_seconds = std::max({offer.step_seconds, with_consensus + added, on_the_wire});
    offer.step_bytes = std::max(offer.step_bytes, std::lround(costs.step_bytes));
    offer.round_bytes = std::max(offer.round_bytes, std::lround(costs.round_bytes));
    offer.slot_bytes = std::max(offer.slot_bytes, std::lround(costs.slot_bytes));
    offer.staleness = costs.staleness;
  }
  offer.slowdown = offer.step_seconds / without;
  return offer;
}

// The settings that are forecast for a method: for "auto" all of its strengths, as far as the
// recipe leaves them open.
std::vector<sync::SyncSettings> candidates(const plan::Plan& plan, const std::string& method) {
  const sync::SyncSettings said = sync_settings(plan.recipe, method, plan.steps);
  const sync::MethodOffer& offer = sync::methods().named(method);
  const bool automatic = recipe::sync_method_of(plan.recipe) == recipe::kAutomaticSync;
  if (!automatic || offer.strengths == nullptr) return {said};
  const recipe::Recipe::Sync& fixed = plan.recipe.sync;
  std::vector<sync::SyncSettings> all;
  std::vector<sync::Strength> seen;
  for (const sync::Strength& strength : offer.strengths(plan.steps)) {
    sync::SyncSettings settings = said;
    settings.random = fixed.random.value_or(strength.random);
    settings.top = fixed.top.value_or(strength.top);
    settings.bits = static_cast<int>(fixed.bits.value_or(strength.bits));
    if (std::ranges::count(seen, *strength_of(settings)) > 0) continue;
    seen.push_back(*strength_of(settings));
    all.push_back(settings);
  }
  return all;
}

// The order in which "auto" prefers offers that compute hides: by rank, then by staleness for the
// strengths of one method.
std::pair<int, double> preference(const plan::Plan::SyncOffer& offer) {
  return {sync::methods().named(offer.method).rank, offer.staleness};
}

}  // namespace

std::vector<plan::Plan::SyncOffer> sync_offers(const plan::Plan& plan,
                                               const models::ModelDescription& model) {
  std::vector<plan::Plan::SyncOffer> offers;
  for (const std::string& name : sync::method_names()) {
    for (const sync::SyncSettings& settings : candidates(plan, name)) {
      offers.push_back(offer_of(plan, model, settings));
    }
  }
  return offers;
}

const plan::Plan::SyncOffer* chosen_offer(const plan::Plan& plan) {
  const auto found =
      std::ranges::find_if(plan.sync_offers, [&](const plan::Plan::SyncOffer& offer) {
        return offer.method == plan.sync_method && offer.strength == plan.sync_strength;
      });
  return found == plan.sync_offers.end() ? nullptr : &*found;
}

double consensus_seconds(const plan::Plan& plan) { return consensus_with(plan, plan.sync_method); }

double consensus_slowdown(const plan::Plan& plan) {
  return 1 + sibling_seconds(plan, 0) / seconds_without(plan);
}

plan::Plan::SyncOffer choose_sync(const std::vector<plan::Plan::SyncOffer>& offers,
                                  double at_the_least) {
  const plan::Plan::SyncOffer* best = nullptr;
  for (const plan::Plan::SyncOffer& offer : offers) {
    if (offer.slowdown > kHidden * at_the_least) continue;
    if (best == nullptr || preference(offer) < preference(*best)) best = &offer;
  }
  if (best != nullptr) return *best;
  return *std::ranges::min_element(offers, {}, &plan::Plan::SyncOffer::slowdown);
}

}  // namespace strait::planner

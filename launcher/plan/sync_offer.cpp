#include "launcher/plan/sync_offer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>

#include "framework/sync/forecast.h"
#include "launcher/plan/planned_sync.h"
#include "launcher/plan/step_forecast.h"
#include "stages/stage_layout.h"

namespace strait::launcher {
namespace {

// A step may be so many times longer and still count as one that sync does not slow down.
constexpr double kHidden = 1.05;
// Exact and fresh updates first, old ones last; see the quality tables for what each costs in loss.
constexpr std::array kByWorth = {"allreduce", "bytegrad",         "onebit_adam", "cocktail",
                                 "powersgd",  "streaming_diloco", "diloco",      "noloco"};
// A method's rounds repeat within so many steps; those of its beginning are passed over.
constexpr std::int64_t kStepsLookedAt = 1024;

struct RoundTime {
  sync::Hook hook = sync::Hook::update;
  std::int64_t late = 0;
};

// When the method's ordinary rounds open and land.
RoundTime round_time(const sync::SyncMethod& method, const sync::Layout& layout,
                     std::int64_t replicas, std::int64_t steps) {
  sync::Membership membership;
  for (std::uint32_t i = 0; i < replicas; ++i) membership.members.push_back(i);
  RoundTime time;
  for (std::int64_t step = 0; step < std::min(steps, kStepsLookedAt); ++step) {
    for (const sync::Hook hook : {sync::Hook::gradient, sync::Hook::clipped, sync::Hook::update}) {
      const auto plan = method.plan({static_cast<store::Step>(step), hook}, layout, membership);
      if (plan) time = {hook, plan->late};
    }
  }
  return time;
}

// What this process sends to its neighbours in the pipeline, over the same uplink.
double boundary_bytes_of(const Plan& plan, net::ProcessName process) {
  std::int64_t bytes = 0;
  for (const Plan::Link& link : plan.links) {
    if (link.connects == process) bytes += link.forward_bytes;
    if (link.listens == process) bytes += link.backward_bytes;
  }
  return static_cast<double>(bytes);
}

// Of the narrowest path between this process and who it talks to: all of its links share it.
double uplink_bytes_per_second(const Plan& plan, const Plan::Process& process) {
  double rate = std::numeric_limits<double>::infinity();
  for (const Plan::Process& other : plan.processes) {
    const bool sibling = other.name.stage == process.name.stage;
    const bool neighbour = other.name.replica == process.name.replica;
    if (other.name == process.name || !(sibling || neighbour)) continue;
    rate = std::min(rate, path_speed(plan, process.host_index, other.host_index).bytes_per_second);
  }
  return rate;
}

// A step without sync. The plan's own forecast knows nothing of what ties send.
double seconds_without(const Plan& plan) {
  double seconds = plan.step_seconds;
  for (const Plan::Process& process : plan.processes) {
    seconds = std::max(
        seconds, boundary_bytes_of(plan, process.name) / uplink_bytes_per_second(plan, process));
  }
  return seconds;
}

// Seconds of a step's computing behind which a round travels.
double window(const Plan& plan, const models::ModelDescription& model, const Plan::Process& process,
              const RoundTime& time) {
  if (time.late > 0) return static_cast<double>(time.late) * plan.step_seconds;
  if (time.hook != sync::Hook::gradient) return 0;
  // Gradients leave while the last micro-batch's backward makes the others.
  const std::int64_t tokens = *plan.recipe.train.micro_batch * plan.recipe.data.row;
  const ComputeSpeed speed = compute_speed(plan, process.host_index, process.threads);
  // That of the first chunk alone, where there are several: the others were through before.
  return stage_cost(model, process.chunks.front(), tokens, speed).backward_seconds;
}

Plan::SyncOffer offer_of(const Plan& plan, const models::ModelDescription& model,
                         const std::string& name) {
  const sync::SyncSettings settings = sync_settings(plan.recipe, name, plan.steps);
  const auto method = sync::make_method(settings);
  Plan::SyncOffer offer;
  offer.method = name;
  const double without = seconds_without(plan);
  offer.step_seconds = without;
  for (const Plan::Process& process : plan.processes) {
    if (process.name.replica != 0) continue;
    const sync::Layout layout = stages::stage_layout(model, process.chunks);
    const std::int64_t replicas = plan.recipe.pipeline.replicas;
    const sync::Forecast costs =
        sync::forecast(settings, layout, static_cast<std::size_t>(replicas));
    const RoundTime time = round_time(*method, layout, replicas, plan.steps);
    const double rate = uplink_bytes_per_second(plan, process);
    const double rounds = costs.round_bytes > 0 ? costs.step_bytes / costs.round_bytes : 0;
    const double waited =
        std::max(costs.round_bytes / rate - window(plan, model, process, time), 0.0);
    const double on_the_wire = (boundary_bytes_of(plan, process.name) + costs.step_bytes) / rate;
    offer.step_seconds = std::max({offer.step_seconds, without + rounds * waited, on_the_wire});
    offer.step_bytes = std::max(offer.step_bytes, std::lround(costs.step_bytes));
    offer.round_bytes = std::max(offer.round_bytes, std::lround(costs.round_bytes));
    offer.slot_bytes = std::max(offer.slot_bytes, std::lround(costs.slot_bytes));
    offer.age = costs.age;
  }
  offer.slowdown = offer.step_seconds / without;
  return offer;
}

}  // namespace

std::vector<Plan::SyncOffer> sync_offers(const Plan& plan, const models::ModelDescription& model) {
  std::vector<Plan::SyncOffer> offers;
  for (const std::string& name : sync::method_names()) {
    offers.push_back(offer_of(plan, model, name));
  }
  return offers;
}

std::string choose_sync(const std::vector<Plan::SyncOffer>& offers) {
  for (const char* name : kByWorth) {
    const auto found = std::ranges::find(offers, name, &Plan::SyncOffer::method);
    if (found != offers.end() && found->slowdown <= kHidden) return name;
  }
  return std::ranges::min_element(offers, {}, &Plan::SyncOffer::slowdown)->method;
}

}  // namespace strait::launcher

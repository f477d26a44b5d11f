
#include "framework/sync/forecast.h"
#include "framework/sync/methods.h"
#include "launcher/base/machine.h"
#include "launcher/planner/host_lines.h"
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

// The round of a step; the last one if it has several.
std::optional<RoundTime> round_of_step(const sync::SyncMethod& method, const sync::Layout& layout,
                                       const sync::Membership& membership, std::int64_t step) {
  std::optional<RoundTime> time;
  for (const sync::Hook hook : {sync::Hook::gradient, sync::Hook::clipped, sync::Hook::update}) {
    const auto plan = method.plan({static_cast<store::Step>(step), hook}, layout, membership);
    if (plan) time = round_time_of(hook, *plan);
  }
  return time;
}

// When the method's regular rounds start and are applied. The last step of a run often has its own
// round, which nothing hides; it counts only if there is no other.
RoundTime round_time(const sync::SyncMethod& method, const sync::Layout& layout,
                     std::size_t members, std::int64_t steps) {
  sync::Membership membership;
  for (std::uint32_t i = 0; i < members; ++i) membership.members.push_back(i);
  const std::int64_t first = std::max<std::int64_t>(steps - 1 - kStepsLookedAt, 0);
  for (std::int64_t step = steps - 2; step >= first; --step) {
    if (const auto time = round_of_step(method, layout, membership, step)) return *time;
  }
  if (steps == 0) return {};
  return round_of_step(method, layout, membership, steps - 1).value_or(RoundTime());
}

bool waits_for_consensus(const plan::Plan& plan, const std::string& method) {
  return method.empty() || method == recipe::kAutomaticSync ||
         groups_with(plan, method, 0).front().size() > 1 || !trains_apart(plan, method);
}

// The replicas of a plan, with what forecasts of all methods need.
class Replicas {
 public:
  Replicas(const plan::Plan& plan, const models::ModelDescription& model)
      : plan_(plan),
        model_(model),
        count_(static_cast<std::size_t>(plan.recipe.pipeline.replicas)),
        lines_(plan, plan::direct_speeds(plan)) {
    for (std::uint32_t stage = 0; stage < plan.recipe.pipeline.stages; ++stage) {
      Stage& added =
          stages_.emplace_back(Stage{stages::stage_layout(model, process(stage, 0).chunks)});
      for (std::uint32_t from = 0; from < count_; ++from) {
        for (std::uint32_t to = 0; to < count_; ++to) {
          added.paths.push_back(plan::path_speed(plan, process(stage, from).host_index,
                                                 process(stage, to).host_index));
          if (from != to) added.latency = std::max(added.latency, added.paths.back().seconds);
        }
      }
    }
  }

  plan::Plan::SyncOffer offer(const sync::SyncSettings& settings) const;

 private:
  struct Stage {
    sync::Layout layout;
    std::vector<plan::PathSpeed> paths =
        {};              // by replica that sends, then by the one that receives
    double latency = 0;  // the largest
  };
  // Replicas that exchange with each other, in several groups of the same size.
  using Groups = sync::ReplicaGroups;

  const plan::Plan::Process& process(std::uint32_t stage, std::uint32_t replica) const {
    return plan_.process({stage, replica});
  }
  const plan::PathSpeed& path(std::uint32_t stage, std::uint32_t from, std::uint32_t to) const {
    return stages_[stage].paths[from * count_ + to];
  }
  // One latency: first stages send at the same time, or in turns, which takes the same on average.
  double consensus_seconds(const std::string& method) const {
    return waits_for_consensus(plan_, method) ? stages_.front().latency : 0;
  }
  double exchange_seconds(std::uint32_t stage, const Groups& groups, double bytes) const;
  void carry(std::uint32_t stage, const Groups& groups, double bytes, HostLines& lines) const;
  double added(std::uint32_t stage, const sync::SyncSettings& settings, const Groups& groups,
               HostLines& lines) const;

  const plan::Plan& plan_;
  const models::ModelDescription& model_;
  std::size_t count_;
  HostLines lines_;  // without sync
  std::vector<Stage> stages_;
};

// Each byte at the rate of its own path: of all that a replica sends, or receives, each path takes
// its part of the line, and none is faster than one connection.
double Replicas::exchange_seconds(std::uint32_t stage, const Groups& groups, double bytes) const {
  double seconds = 0;
  for (const std::vector<std::uint32_t>& group : groups) {
    const double each = bytes / static_cast<double>(group.size() - 1);
    for (const std::uint32_t own : group) {
      double sends = 0;
      double receives = 0;
      for (const std::uint32_t peer : group) {
        if (peer == own) continue;
        sends += each / path(stage, own, peer).uplink;
        receives += each / path(stage, peer, own).downlink;
        seconds = std::max(seconds, each / path(stage, own, peer).bytes_per_second);
      }
      seconds = std::max({seconds, sends, receives});
    }
  }
  return seconds;
}

void Replicas::carry(std::uint32_t stage, const Groups& groups, double bytes,
                     HostLines& lines) const {
  for (const std::vector<std::uint32_t>& group : groups) {
    const double each = bytes / static_cast<double>(group.size() - 1);
    for (const std::uint32_t own : group) {
      for (const std::uint32_t peer : group) {
        if (peer == own) continue;
        lines.carry(process(stage, own), process(stage, peer), each, path(stage, own, peer));
      }
    }
  }
}

// Seconds of a step that hide a round.
double window(const plan::Plan& plan, const models::ModelDescription& model,
              const plan::Plan::Process& process, const RoundTime& time, double consensus) {
  if (time.late > 0) {
    // A result is applied after the consensus round of a step. If replicas can be lost, that round
    // first finds out which ones have the result, so one consensus round less hides it.
    const bool confirms = plan.recipe.sync.on_loss == recipe::LossRule::continue_run;
    const std::int64_t rounds = time.late - (confirms ? 1 : 0);
    return static_cast<double>(time.late) * plan.step_seconds +
           static_cast<double>(rounds) * consensus;
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

// A round of a method, and what hides it.
struct Round {
  sync::Forecast costs;
  sync::CodingCost coding;
  RoundTime time;
  double copy_seconds = 0;    // of the values that it is about
  double travel_seconds = 0;  // of its bytes
  double latency = 0;
  double hiding = 0;  // seconds of compute that hide it
};

// Seconds that a method's rounds add to a step: waiting, applying the result, and computation that
// coding delays.
double added_seconds(const plan::Plan& plan, const plan::Plan::Process& process,
                     const Round& round) {
  // Gradients have a round in every step, whose mean bytes are below those of the largest round.
  const bool of_updates = round.time.hook == sync::Hook::update;
  const double rounds = of_updates ? round.costs.step_bytes / round.costs.round_bytes : 1;
  const double coded = round.coding.engine * round.copy_seconds / rounds;
  const double travels = round.travel_seconds / rounds;
  const double trips = static_cast<double>(round.time.trips) * round.latency;
  // The last gradient is sent after the backward, so nothing hides its latencies.
  const double hidden = of_updates ? trips : 0;
  const double waited = std::max(coded + travels + hidden - round.hiding, 0.0) + (trips - hidden);
  const double delayed = std::min(coded, round.hiding) * delay_by_coding(plan, process);
  return rounds * (waited + delayed) +
         round.coding.trainer * round.copy_seconds / static_cast<double>(process.threads);
}

// What rounds between the members of groups add to a step. A sum in a group is assumed to cost as
// much as coding, because memory is several times as fast as links.
double Replicas::added(std::uint32_t stage, const sync::SyncSettings& settings,
                       const Groups& groups, HostLines& lines) const {
  const std::size_t members = groups.front().size();
  if (members < 2) return 0;
  const sync::Layout& layout = stages_[stage].layout;
  const plan::Plan::Process& first = process(stage, 0);
  Round round;
  round.costs = sync::forecast(settings, layout, members);
  if (round.costs.round_bytes <= 0) return 0;
  round.coding = sync::coding_cost(settings);
  round.time = round_time(*sync::make_method(settings), layout, members, plan_.steps);
  round.copy_seconds = static_cast<double>(layout.size()) * sizeof(float) /
                       plan::copy_speed(plan_, first.host_index);
  round.travel_seconds = exchange_seconds(stage, groups, round.costs.step_bytes);
  round.latency = stages_[stage].latency;
  round.hiding = window(plan_, model_, first, round.time, consensus_seconds(settings.method));
  carry(stage, groups, round.costs.step_bytes, lines);
  return added_seconds(plan_, first, round);
}

plan::Plan::SyncOffer Replicas::offer(const sync::SyncSettings& settings) const {
  plan::Plan::SyncOffer offer;
  offer.method = settings.method;
  offer.strength = strength_of(settings);
  const double without = std::max(plan_.step_seconds, lines_.busiest_seconds());
  const double with_consensus = without + consensus_seconds(settings.method);
  offer.step_seconds = with_consensus;
  HostLines lines = lines_;
  for (std::uint32_t stage = 0; stage < stages_.size(); ++stage) {
    // The first replica of a group leads it.
    const sync::ReplicaGroups groups = groups_with(plan_, settings.method, stage);
    const sync::Forecast costs = sync::forecast(settings, stages_[stage].layout, groups, 0);
    std::vector<std::uint32_t> leaders;
    for (const auto& group : groups) leaders.push_back(group.front());
    const double added = this->added(stage, settings, {leaders}, lines) +
                         this->added(stage, sync::settings_in_group(settings), groups, lines);
    offer.step_seconds = std::max(offer.step_seconds, with_consensus + added);
    offer.step_bytes = std::max(offer.step_bytes, std::lround(costs.step_bytes));
    offer.round_bytes = std::max(offer.round_bytes, std::lround(costs.round_bytes));
    offer.slot_bytes = std::max(offer.slot_bytes, std::lround(costs.slot_bytes));
    offer.staleness = costs.staleness;
  }
  offer.step_seconds = std::max(offer.step_seconds, lines.busiest_seconds());
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

// Between two first stages.
double longest_latency(const plan::Plan& plan) {
  double seconds = 0;
  for (const plan::Plan::Process& one : plan.processes) {
    if (one.name.stage != 0) continue;
    for (const plan::Plan::Process& other : plan.processes) {
      if (other.name.stage != 0 || other.name.replica == one.name.replica) continue;
      seconds = std::max(seconds, plan::path_speed(plan, one.host_index, other.host_index).seconds);
    }
  }
  return seconds;
}

}  // namespace

std::vector<plan::Plan::SyncOffer> sync_offers(const plan::Plan& plan,
                                               const models::ModelDescription& model) {
  const Replicas replicas(plan, model);
  std::vector<plan::Plan::SyncOffer> offers;
  for (const std::string& name : sync::method_names()) {
    for (const sync::SyncSettings& settings : candidates(plan, name)) {
      offers.push_back(replicas.offer(settings));
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

double sync_seconds(const plan::Plan& plan) {
  const plan::Plan::SyncOffer* const offer = chosen_offer(plan);
  return offer != nullptr ? offer->step_seconds - plan.step_seconds : consensus_seconds(plan);
}

bool trains_apart(const plan::Plan& plan, const std::string& method) {
  return plan.recipe.sync.on_loss != recipe::LossRule::continue_run &&
         sync::make_method(sync_settings(plan.recipe, method, plan.steps))->traits.trains_apart;
}

double consensus_seconds(const plan::Plan& plan) {
  return waits_for_consensus(plan, plan.sync_method) ? longest_latency(plan) : 0;
}

double consensus_slowdown(const plan::Plan& plan) {
  return 1 + longest_latency(plan) / plan.step_seconds;
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

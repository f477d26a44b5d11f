#include "framework/sync/forecast.h"

#include <algorithm>
#include <cmath>

#include "framework/net/frame_memory.h"
#include "framework/net/link_options.h"
#include "framework/net/wire_format.h"
#include "framework/sync/methods.h"
#include "framework/sync/round.h"

namespace strait::sync {
namespace {

// The bytes of one round of a plan in which each value takes `bits`.
double planned_bytes(const ForecastInput& input, const RoundPlan& plan, double bits) {
  double bytes = 0;
  for (const Range& range : plan.ranges) bytes += static_cast<double>(range.count()) * bits / 8;
  const auto ranges = static_cast<double>(plan.ranges.size());
  const double sent = bytes + ForecastInput::frame_bytes(ranges);
  const double exchange =
      plan.pattern == Pattern::shard_reduce ? input.shard_reduce_bytes(bytes, ranges)
      : plan.pattern == Pattern::gather_all ? input.others() * sent + input.ready_bytes()
                                            : sent;
  return exchange * static_cast<double>(plan.exchanges);
}

// Plans repeat themselves, so the mean of this many steps stands for the run.
constexpr std::int64_t kMostPlannedSteps = 512;

Membership members_of(const ForecastInput& input) {
  Membership membership;
  for (std::uint32_t i = 0; i < input.members; ++i) membership.members.push_back(i);
  return membership;
}

// The round that a method opens first, which is one of the heaviest.
std::optional<RoundPlan> first_round(const ForecastInput& input, const SyncMethod& method) {
  const Membership membership = members_of(input);
  const std::int64_t steps = std::max(kMostPlannedSteps, input.settings.every + 1);
  for (std::int64_t step = 0; step < steps; ++step) {
    for (const Hook hook : {Hook::gradient, Hook::clipped, Hook::update}) {
      auto plan = method.plan({static_cast<store::Step>(step), hook}, input.layout, membership);
      if (plan) return plan;
    }
  }
  return std::nullopt;
}

// `sent`: bytes of a round to all others. Contributions and results are taken to be equally large;
// see run_exchange() for what is held, and link_options.h for what a link may carry.
double frame_memory(const ForecastInput& input, const SyncMethod& method, const RoundPlan& plan,
                    double sent) {
  if (input.members < 2) return 0;
  const auto window = static_cast<double>(net::LinkOptions{}.window_bytes);
  const auto carried = [&](double links, double bytes) {
    constexpr double kBothWays = 2;
    return kBothWays * links * std::min(bytes, window);
  };
  switch (plan.pattern) {
    case Pattern::shard_reduce: {
      const double whole = sent * input.members / (2 * input.others());
      const double part = whole / input.members;
      const double own = method.traits.reads_own_contribution ? whole : part;
      return whole + own + carried(input.others(), part);
    }
    case Pattern::gather_all: {
      const double own = sent / input.others();
      return input.members * own + carried(input.others(), own);
    }
    case Pattern::pair:
      return 2 * sent + carried(1, sent);
    case Pattern::group:
    case Pattern::group_gather:
      return 0;
  }
  return 0;
}

// Rounds that a read of the model causes have frames of their own sizes, for which those that an
// ordinary round has left in FrameMemory are of no use.
double frame_memory_with_reads(const ForecastInput& input, const SyncMethod& method, double sent,
                               double bits) {
  const std::optional<RoundPlan> round = first_round(input, method);
  const std::optional<RoundPlan> read =
      method.plan({store::Step{0}, Hook::model_read}, input.layout, members_of(input));
  const double ordinary = round ? frame_memory(input, method, *round, sent) : 0;
  if (!read) return ordinary;
  constexpr auto kKept = static_cast<double>(net::FrameMemory::kKeptBytes);
  return std::max(ordinary,
                  std::min(ordinary, kKept) +
                      frame_memory(input, method, *read, planned_bytes(input, *read, bits)));
}

// The forecast of a method whose offer has none: plans its steps one by one. The round that closes
// the run is not an ordinary one, so it counts for round_bytes only if there is no other.
Forecast planned_forecast(const ForecastInput& input, const SyncMethod& method, double bits) {
  const Membership membership = members_of(input);
  const std::int64_t steps = std::min(input.settings.steps, kMostPlannedSteps);
  Forecast costs;
  double rounds = 0;
  double late = 0;
  for (std::int64_t step = 0; step < steps; ++step) {
    for (const Hook hook : {Hook::gradient, Hook::clipped, Hook::update}) {
      const auto plan =
          method.plan({static_cast<store::Step>(step), hook}, input.layout, membership);
      if (!plan) continue;
      const double round = planned_bytes(input, *plan, bits);
      costs.step_bytes += round / static_cast<double>(steps);
      if (rounds == 0 || step + 1 < input.settings.steps) {
        costs.round_bytes = std::max(costs.round_bytes, round);
        late = static_cast<double>(plan->late);
      }
      ++rounds;
    }
  }
  if (rounds > 0) {
    costs.staleness = late + std::max(static_cast<double>(steps) / rounds - 1, 0.0) / 2;
  }
  return costs;
}

}  // namespace

double ForecastInput::bucket(double bits) const {
  return static_cast<double>(
      bucket_values(static_cast<std::size_t>(members), static_cast<int>(bits)));
}

double ForecastInput::frame_bytes(double frames) {
  return frames * (kRoundMessageBytes + net::kHeaderBytes);
}

// Each member sends all but its own share to the owners, and the result of its share to all others.
double ForecastInput::shard_reduce_bytes(double code_bytes, double ranges) const {
  return 2 * code_bytes * others() / members + frame_bytes(2 * others() * ranges) + ready_bytes();
}

double ForecastInput::bucketed_bytes(double count, double bits, double bucket) const {
  return shard_reduce_bytes(count * bits / 8, std::ceil(count / bucket));
}

Forecast every_step(double bytes) { return {.step_bytes = bytes, .round_bytes = bytes}; }

CodingCost once_in(std::int64_t every, std::int64_t unless_set, const CodingCost& pass) {
  const auto updates = static_cast<double>(every == 0 ? unless_set : every);
  return {pass.engine / updates, pass.trainer / updates};
}

Forecast forecast(const SyncSettings& settings, const Layout& layout, std::size_t members) {
  const auto method = make_method(settings);
  const MethodOffer& offer = methods().named(settings.method);
  const ForecastInput input{settings, layout, static_cast<double>(members)};
  Forecast costs = offer.forecast != nullptr ? offer.forecast(input)
                                             : planned_forecast(input, *method, offer.wire_bits);
  for (const SlotNeed& need : method->traits.slots) {
    costs.slot_bytes += input.values() * (need.width == SlotNeed::Width::bfloat16 ? 2 : 4);
  }
  // SlotsSnapshot keeps them as they were until the step is agreed on.
  if (method->traits.sums_gradients) costs.slot_bytes *= 2;
  costs.frame_bytes = frame_memory_with_reads(input, *method, costs.round_bytes, offer.wire_bits);
  return costs;
}

bool step_waits_for_rounds(const SyncSettings& settings, const Layout& layout,
                           std::size_t members) {
  const ForecastInput input{settings, layout, static_cast<double>(members)};
  const std::optional<RoundPlan> plan = first_round(input, *make_method(settings));
  return plan && plan->late == 0;
}

Forecast forecast(const SyncSettings& settings, const Layout& layout, const ReplicaGroups& groups,
                  std::uint32_t replica) {
  const Membership own = group_of(groups, replica);
  const Forecast sums =
      own.count() == 1 ? Forecast() : forecast(settings_in_group(settings), layout, own.count());
  if (groups.size() == 1) return sums;
  Forecast costs = forecast(settings, layout, groups.size());
  if (own.mine > 0) costs.step_bytes = costs.round_bytes = costs.frame_bytes = 0;
  costs.step_bytes += sums.step_bytes;
  costs.round_bytes += sums.round_bytes;
  return costs;
}

CodingCost coding_cost(const SyncSettings& settings) {
  const MethodOffer* const offer = methods().find(settings.method);
  const bool known = offer != nullptr && offer->coding_cost != nullptr;
  return known ? offer->coding_cost(settings) : kPlainCodingCost;
}

}  // namespace strait::sync

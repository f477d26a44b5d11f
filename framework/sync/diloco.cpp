#include "framework/sync/diloco.h"

#include <algorithm>

#include "framework/sync/float_codes.h"
#include "framework/sync/layout.h"
#include "framework/sync/sync_method.h"

namespace strait::sync {
namespace {

constexpr const char* kWeightsChange = "a part of a change of weights";

}  // namespace

Diloco::Diloco(const SyncSettings& settings)
    : narrow_(settings.narrow_wire),
      every_(checked_interval(settings, kEvery)),
      steps_(settings.steps),
      outer_(outer_step(settings, {0.7F, 0.9F})) {}

std::vector<SlotNeed> Diloco::slots() const {
  return {{.name = kReference}, {.name = kOuter, .shared = true}};
}

void Diloco::start(Slots& slots) {
  std::ranges::copy(slots.values(kWeights), slots.values(kReference).begin());
}

std::optional<RoundPlan> Diloco::plan(const HookPoint& point, const Layout& layout,
                                      const Membership& membership) const {
  const std::int64_t made = store::number(point.step) + 1;
  // Also after the last update, or what was trained since the last round would not be in the model.
  if (point.hook != Hook::update || (made % every_ != 0 && made != steps_)) return std::nullopt;
  RoundPlan plan;
  plan.ranges = buckets_of(layout, bucket_values(membership.count(), narrow_ ? 16 : 32));
  return plan;
}

void Diloco::encode(const Round&, const Part& part, const Slots& slots, net::Frame& out) {
  append_floats(change_from_reference(slots, part.range), narrow_, out);
}

void Diloco::reduce(const Round&, const Part& part, Contributions contributions, const Slots&,
                    net::Frame& out) {
  const auto count = static_cast<std::size_t>(part.range.count());
  append_floats(mean_of_finite_floats(contributions, narrow_, count, kWeightsChange), narrow_, out);
}

// Checks all of it before apply() changes anything.
void Diloco::decode(const Round& round, const Part& part, const Slots&) {
  check_finite_floats(round.exchanges.front().results[part.index], narrow_,
                      static_cast<std::size_t>(part.range.count()), kWeightsChange);
}

void Diloco::apply(const Round& round, Slots& slots) {
  const std::vector<net::Frame>& results = round.exchanges.front().results;
  apply_parts(round, slots,
              [&](const Part& part) { apply_part(part, results[part.index], slots); });
}

void Diloco::apply_part(const Part& part, std::span<const std::byte> result, Slots& slots) const {
  std::vector<float> change(static_cast<std::size_t>(part.range.count()));
  read_floats(result, narrow_, change, kWeightsChange);
  const auto reference = within(slots.values(kReference), part.range);
  outer_.make(change, within(slots.values(kOuter), part.range), reference);
  std::ranges::copy(reference, within(slots.values(kWeights), part.range).begin());
}

Forecast Diloco::forecast(const ForecastInput& input) {
  const double bits = input.settings.narrow_wire ? 16 : 32;
  const double every = input.every(kEvery);
  const double round = input.bucketed_bytes(input.values(), bits, input.bucket(bits));
  return {.step_bytes = round / every, .round_bytes = round, .staleness = (every - 1) / 2};
}

CodingCost Diloco::coding_cost(const SyncSettings& settings) {
  return once_in(settings.every, kEvery, {.engine = 15, .trainer = 5});
}

}  // namespace strait::sync

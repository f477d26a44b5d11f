#include "framework/sync/diloco.h"

#include <fmt/format.h>

#include <algorithm>

#include "framework/sync/allreduce.h"
#include "framework/sync/bucket_values.h"
#include "framework/sync/finite_floats.h"
#include "framework/sync/float_bytes.h"
#include "framework/sync/land_parts.h"
#include "framework/sync/sync_error.h"
#include "framework/sync/within.h"

namespace strait::sync {
namespace {

constexpr const char* kChange = "a part of a change of weights";

}  // namespace

Diloco::Diloco(const SyncSettings& settings)
    : narrow_(settings.narrow_wire),
      every_(settings.every == 0 ? kEvery : settings.every),
      steps_(settings.steps),
      outer_(outer_step(settings, {0.7F, 0.9F})) {
  if (every_ < 1) {
    throw SyncError(SyncError::Kind::setting,
                    fmt::format("diloco cannot sync every {} updates", every_));
  }
}

std::vector<SlotNeed> Diloco::slots() const {
  return {{.name = kReference}, {.name = kOuter, .shared = true}};
}

void Diloco::start(Slots& slots) {
  std::ranges::copy(slots.values(kWeights), slots.values(kReference).begin());
}

std::optional<RoundPlan> Diloco::plan(const Moment& moment, const Layout& layout,
                                      const Membership& membership) const {
  const std::int64_t made = store::number(moment.step) + 1;
  if (moment.hook != Hook::update || (made % every_ != 0 && made != steps_)) return std::nullopt;
  RoundPlan plan;
  plan.ranges = buckets_of(layout, bucket_values(membership.count(), narrow_ ? 16 : 32));
  return plan;
}

void Diloco::tell(const Round&, const Part& part, const Slots& slots, net::Frame& out) {
  const auto reference = within(slots.values(kReference), part.range);
  const auto weights = within(slots.values(kWeights), part.range);
  std::vector<float> change(reference.size());
  for (std::size_t i = 0; i < change.size(); ++i) change[i] = reference[i] - weights[i];
  append_floats(change, narrow_, out);
}

void Diloco::fold(const Round&, const Part& part, Told told, const Slots&, net::Frame& out) {
  const auto count = static_cast<std::size_t>(part.range.count());
  append_floats(mean_of_finite_floats(told, narrow_, count, kChange), narrow_, out);
}

// All of it is looked at before anything changes.
void Diloco::arrived(const Round& round, const Part& part, const Slots&) {
  check_finite_floats(round.exchanges.front().agreed[part.index], narrow_,
                      static_cast<std::size_t>(part.range.count()), kChange);
}

void Diloco::land(const Round& round, Slots& slots) {
  const std::vector<net::Frame>& agreed = round.exchanges.front().agreed;
  land_parts(round, slots, [&](const Part& part) { land_part(part, agreed[part.index], slots); });
}

void Diloco::land_part(const Part& part, std::span<const std::byte> agreed, Slots& slots) const {
  std::vector<float> change(static_cast<std::size_t>(part.range.count()));
  read_floats(agreed, narrow_, change, kChange);
  const auto reference = within(slots.values(kReference), part.range);
  outer_.make(change, within(slots.values(kOuter), part.range), reference);
  std::ranges::copy(reference, within(slots.values(kWeights), part.range).begin());
}

}  // namespace strait::sync

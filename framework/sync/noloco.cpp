#include "framework/sync/noloco.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "framework/sync/allreduce.h"
#include "framework/sync/bucket_values.h"
#include "framework/sync/finite_floats.h"
#include "framework/sync/float_bytes.h"
#include "framework/sync/keyed_stream.h"
#include "framework/sync/land_parts.h"
#include "framework/sync/outer_step.h"
#include "framework/sync/sync_error.h"
#include "framework/sync/within.h"

namespace strait::sync {
namespace {

constexpr int kSlowBits = 32;
constexpr const char* kSlowPart = "a part of slow weights";

bool looks(const Round& round) { return round.opened.hook == Hook::look; }

// What the partner told of a part; whoever sits a round out is its own partner.
const net::Frame& partners(const Round& round, const Part& part) {
  const Round::Exchange& exchange = round.exchanges.front();
  const bool alone = round.plan.partner == round.membership.mine;
  return alone ? exchange.mine[part.index] : exchange.theirs[part.index].front();
}

// A part's slow weights, and fast minus slow.
class PairedPart {
 public:
  PairedPart(const net::Frame& frame, Range range)
      : both_(2 * static_cast<std::size_t>(range.count())) {
    read_floats(frame, false, both_, kSlowPart);
  }
  std::span<const float> slow() const { return std::span(both_).first(both_.size() / 2); }
  std::span<const float> change() const { return std::span(both_).last(both_.size() / 2); }

 private:
  std::vector<float> both_;  // as they travel: first all of the one, then all of the other
};

}  // namespace

Noloco::Noloco(const SyncSettings& settings)
    : seed_(settings.seed),
      every_(settings.every == 0 ? kEvery : settings.every),
      steps_(settings.steps),
      outer_(outer_step(settings, {0.7F, 0.5F})) {
  if (every_ < 1) {
    throw SyncError(SyncError::Kind::setting,
                    fmt::format("noloco cannot sync every {} updates", every_));
  }
}

std::vector<SlotNeed> Noloco::slots() const {
  return {{.name = kSlow}, {.name = kDelta}, {.name = kMean}};
}

void Noloco::start(Slots& slots) {
  std::ranges::copy(slots.values(kWeights), slots.values(kSlow).begin());
  std::ranges::copy(slots.values(kWeights), slots.values(kMean).begin());
}

std::size_t Noloco::partner(std::int64_t made, const Membership& membership) const {
  std::vector<std::size_t> order(membership.count());
  std::iota(order.begin(), order.end(), std::size_t{0});
  KeyedStream random{seed_, static_cast<std::uint64_t>(made)};
  for (std::size_t left = order.size(); left > 1; --left) {
    std::swap(order[left - 1], order[random.below(left)]);
  }
  // Neighbours in this order are partners: places 0 and 1, 2 and 3, …
  const auto mine = std::find(order.begin(), order.end(), membership.mine) - order.begin();
  const auto theirs = static_cast<std::size_t>(mine) ^ 1U;
  return theirs < order.size() ? order[theirs] : membership.mine;
}

std::optional<RoundPlan> Noloco::plan(const Moment& moment, const Layout& layout,
                                      const Membership& membership) const {
  RoundPlan plan;
  plan.ranges = buckets_of(layout, bucket_values(membership.count(), kSlowBits));
  if (moment.hook == Hook::look) return plan;
  const std::int64_t made = store::number(moment.step) + 1;
  if (moment.hook != Hook::update || (made % every_ != 0 && made != steps_)) return std::nullopt;
  plan.pattern = Pattern::pair;
  plan.partner = partner(made, membership);
  return plan;
}

void Noloco::tell(const Round& round, const Part& part, const Slots& slots, net::Frame& out) {
  const auto slow = within(slots.values(kSlow), part.range);
  append_floats(slow, false, out);
  if (looks(round)) return;
  const auto fast = within(slots.values(kWeights), part.range);
  std::vector<float> change(slow.size());
  for (std::size_t i = 0; i < change.size(); ++i) change[i] = fast[i] - slow[i];
  append_floats(change, false, out);
}

void Noloco::fold(const Round&, const Part& part, Told told, const Slots&, net::Frame& out) {
  const auto count = static_cast<std::size_t>(part.range.count());
  append_floats(mean_of_finite_floats(told, false, count, kSlowPart), false, out);
}

void Noloco::arrived(const Round& round, const Part& part, const Slots&) {
  const auto count = static_cast<std::size_t>(part.range.count());
  const Round::Exchange& exchange = round.exchanges.front();
  if (looks(round))
    return check_finite_floats(exchange.agreed[part.index], false, count, kSlowPart);
  check_finite_floats(exchange.mine[part.index], false, 2 * count, kSlowPart);
  check_finite_floats(partners(round, part), false, 2 * count, kSlowPart);
}

void Noloco::land(const Round& round, Slots& slots) {
  if (looks(round)) {
    take_agreed_floats(round, slots, kMean, kSlowPart);
  } else {
    land_pair(round, slots);
  }
}

void Noloco::land_pair(const Round& round, Slots& slots) const {
  land_parts(round, slots, [&](const Part& part) {
    const PairedPart mine(round.exchanges.front().mine[part.index], part.range);
    const PairedPart theirs(partners(round, part), part.range);
    const auto slow = within(slots.values(kSlow), part.range);
    const auto delta = within(slots.values(kDelta), part.range);
    for (std::size_t i = 0; i < slow.size(); ++i) {
      const float change = (mine.change()[i] + theirs.change()[i]) / 2;
      const float from_mean = (mine.slow()[i] - theirs.slow()[i]) / 2;
      delta[i] = outer_.momentum * delta[i] + outer_.learning_rate * change - kPull * from_mean;
      slow[i] += delta[i];
    }
    std::ranges::copy(slow, within(slots.values(kWeights), part.range).begin());
  });
}

}  // namespace strait::sync

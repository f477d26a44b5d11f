#include <algorithm>
#include <cmath>
#include <numeric>

#include "framework/sync/float_codes.h"
#include "framework/sync/layout.h"
#include "framework/sync/methods.h"
#include "framework/sync/outer_step.h"
#include "framework/sync/random_choice.h"

namespace strait::sync {
namespace {

// The slow weights are in kReference, their last change in kOuter; this is the mean of all slow
// weights at the last read.
constexpr const char* kMean = "mean";
constexpr std::int64_t kPairsEvery = 50;  // unless set
constexpr float kPull = 1;
constexpr int kSlowBits = 32;
constexpr const char* kSlowPart = "a part of slow weights";

// A round that computes the mean for a read of the model, not one of a pair.
bool is_read(const Round& round) { return round.opened.hook == Hook::model_read; }

// The partner's contribution to a part; a replica without a partner is its own.
const net::Frame& partner_frame(const Round& round, const Part& part) {
  const Round::Exchange& exchange = round.exchanges.front();
  const bool alone = round.plan.partner == round.membership.mine;
  return alone ? exchange.own[part.index] : exchange.received[part.index].front();
}

// The slow weights of a part, and fast minus slow weights.
class PairedPart {
 public:
  PairedPart(const net::Frame& frame, Range range)
      : both_(2 * static_cast<std::size_t>(range.count())) {
    read_floats(frame, false, both_, kSlowPart);
  }
  std::span<const float> slow() const { return std::span(both_).first(both_.size() / 2); }
  std::span<const float> change() const { return std::span(both_).last(both_.size() / 2); }

 private:
  std::vector<float> both_;  // as on the wire: all slow weights, then all changes
};

// Without a collective: every `every` updates a permutation that all replicas compute pairs them,
// and partners exchange their slow weights and how far their fast weights moved from these.
// Momentum on the pair's mean change and a pull towards the pair's mean keep all replicas close;
// they never become equal. So a read of the model sees the exact mean of all slow weights, which a
// round of its own computes. With an odd number of replicas one has no partner.
class Noloco final : public SyncMethod {
 public:
  explicit Noloco(const SyncSettings& settings)
      : SyncMethod({.slots = {{.name = kReference}, {.name = kOuter}, {.name = kMean}},
                    .trainer_slots = {kWeights},
                    .model_slot = kMean,
                    .trains_apart = true}),
        seed_(settings.seed),
        every_(checked_interval(settings, kPairsEvery)),
        steps_(settings.steps),
        outer_(outer_step(settings, {0.7F, 0.5F})) {}

  void start(Slots& slots) override {
    std::ranges::copy(slots.values(kWeights), slots.values(kReference).begin());
    std::ranges::copy(slots.values(kWeights), slots.values(kMean).begin());
  }
  std::optional<RoundPlan> plan(const HookPoint& point, const Layout& layout,
                                const Membership& membership) const override {
    RoundPlan plan = plan_in_buckets(layout, membership, kSlowBits);
    if (point.hook == Hook::model_read) return plan;
    const std::int64_t made = store::number(point.step) + 1;
    if (point.hook != Hook::update || (made % every_ != 0 && made != steps_)) return std::nullopt;
    plan.pattern = Pattern::pair;
    plan.partner = partner(made, membership);
    return plan;
  }
  void encode(const Round& round, const Part& part, const Slots& slots, net::Frame& out) override {
    const auto slow = within(slots.values(kReference), part.range);
    append_floats(slow, false, out);
    if (is_read(round)) return;
    const auto fast = within(slots.values(kWeights), part.range);
    std::vector<float> change(slow.size());
    for (std::size_t i = 0; i < change.size(); ++i) change[i] = fast[i] - slow[i];
    append_floats(change, false, out);
  }
  void reduce(const Round&, const Part& part, Contributions contributions, const Slots&,
              net::Frame& out) override {
    append_floats(mean_of_finite_floats(contributions, false, part.values(), kSlowPart), false,
                  out);
  }
  void decode(const Round& round, const Part& part, const Slots&) override {
    const Round::Exchange& exchange = round.exchanges.front();
    if (is_read(round))
      return check_finite_floats(round.result(part), false, part.values(), kSlowPart);
    check_finite_floats(exchange.own[part.index], false, 2 * part.values(), kSlowPart);
    check_finite_floats(partner_frame(round, part), false, 2 * part.values(), kSlowPart);
  }
  void apply(const Round& round, Slots& slots) override {
    if (is_read(round)) {
      apply_floats(round, false, slots, kMean, kSlowPart);
    } else {
      apply_pair(round, slots);
    }
  }
  std::optional<double> distance() const override { return distance_.share(); }

 private:
  std::size_t partner(std::int64_t made, const Membership& membership) const {
    std::vector<std::size_t> order(membership.count());
    std::iota(order.begin(), order.end(), std::size_t{0});
    // A Fisher-Yates shuffle with a key that all replicas have.
    KeyedStream random{seed_, static_cast<std::uint64_t>(made)};
    for (std::size_t left = order.size(); left > 1; --left) {
      std::swap(order[left - 1], order[random.below(left)]);
    }
    // Adjacent replicas of the shuffled order are partners: 0 and 1, 2 and 3, …
    const auto mine = std::find(order.begin(), order.end(), membership.mine) - order.begin();
    const auto theirs = static_cast<std::size_t>(mine) ^ 1U;
    return theirs < order.size() ? order[theirs] : membership.mine;
  }
  void apply_pair(const Round& round, Slots& slots) {
    distance_.begin(round.parts.size());
    apply_parts(round, slots, [&](const Part& part) {
      const PairedPart mine(round.exchanges.front().own[part.index], part.range);
      const PairedPart theirs(partner_frame(round, part), part.range);
      // Symmetric in the two partners, so that the mean of their slow weights is not pulled
      // anywhere.
      const auto slow = within(slots.values(kReference), part.range);
      const auto delta = within(slots.values(kOuter), part.range);
      for (std::size_t i = 0; i < slow.size(); ++i) {
        const float change = (mine.change()[i] + theirs.change()[i]) / 2;
        const float fast = mine.slow()[i] + mine.change()[i];
        distance_.add(part.index, fast, (fast + theirs.slow()[i] + theirs.change()[i]) / 2);
        const float from_mean = (mine.slow()[i] - theirs.slow()[i]) / 2;
        delta[i] = outer_.momentum * delta[i] + outer_.learning_rate * change - kPull * from_mean;
        slow[i] += delta[i];
      }
      std::ranges::copy(slow, within(slots.values(kWeights), part.range).begin());
    });
  }

  std::uint64_t seed_;
  std::int64_t every_;
  std::int64_t steps_;
  OuterStep outer_;
  MeanDistance distance_;
};

Forecast noloco_forecast(const ForecastInput& input) {
  constexpr double kFloatBits = kSlowBits;
  const double every = input.every(kPairsEvery);
  // One of an odd number has no partner.
  const double paired = input.members - std::fmod(input.members, 2);
  const double frames = std::ceil(input.values() / input.bucket(kFloatBits)) + 1;
  const double round = paired / input.members *
                       (2 * input.values() * kFloatBits / 8 + ForecastInput::frame_bytes(frames));
  // The replicas that a change has reached double with each round.
  const double rounds = std::ceil(std::log2(input.members));
  return {.step_bytes = round / every,
          .round_bytes = round,
          .staleness = (every - 1) / 2 + every * std::max(rounds - 1, 0.0)};
}

}  // namespace

MethodOffer noloco() {
  return {.name = "noloco",
          .make = made<Noloco>,
          .reads = {"every", "outer_learning_rate", "outer_momentum"},
          .needs_all =
              "averages all replicas when the model is read, and no consensus round covers that "
              "read",
          .forecast = noloco_forecast,
          .coding_cost =
              [](const SyncSettings& settings) {
                return once_in(settings.every, kPairsEvery, {.engine = 20, .trainer = 16});
              },
          .rank = 80};
}

}  // namespace strait::sync

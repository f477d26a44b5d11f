#include <algorithm>
#include <cmath>

#include "framework/sync/float_codes.h"
#include "framework/sync/group_codes.h"
#include "framework/sync/layout.h"
#include "framework/sync/methods.h"
#include "framework/sync/sync_error.h"

namespace strait::sync {
namespace {

// The residuals, named as in checkpoints: of the replica, and of the parts that it owns.
constexpr const char* kOwedMoment = "owed";
constexpr const char* kServerOwedMoment = "server_owed";
constexpr int kSignBits = 1;
// The share of the run that warms up: a fifteenth.
constexpr std::int64_t kWarmupShare = 15;
constexpr const char* kWarmGradient = "a part of a gradient";
constexpr const char* kSignedMoment = "a part of a moment";

// A moment is clipped at this many spreads of its weight. If the second moment was frozen before a
// weight was ever trained (the row of a rare token), its moment is unbounded, and the residual
// would never be paid off.
constexpr float kMostSpreads = 10;

float within_reach(float value, float spread) {
  const float most = kMostSpreads * spread;
  return std::clamp(value, -most, most);
}

// What an encoding leaves out of its values: the new residual. Zero where the spread is zero, since
// such a weight never moves.
std::vector<float> left_out_by(const net::Frame& code, std::size_t at,
                               std::span<const float> values, std::span<const float> spread) {
  std::vector<float> rest(values.size());
  read_sign_groups(std::span(code).subspan(at), spread, rest, kSignedMoment);
  for (std::size_t i = 0; i < rest.size(); ++i) {
    rest[i] = spread[i] > 0 ? values[i] - rest[i] : 0.0F;
  }
  return rest;
}

std::int64_t warmup_steps(const SyncSettings& settings) {
  // Two at least: fresh adapters have a gradient in one of their two matrices only, in the first.
  return std::max(settings.steps / kWarmupShare, std::int64_t{2});
}

// Exact means of gradients while Adam warms up. Then the second moment is frozen, and the first is
// agreed on in a bit per value in each direction, with error feedback at both ends: what a sign
// leaves out is added to the next contribution. Signs are scaled by the square root of the frozen
// second moment, which all replicas know, so a bit is the same share of an update for every weight.
// (With one scale for all, as first published, weights with a small second moment diverge: on the
// tests' quadratic at a rate at which this version converges.) A weight whose second moment is far
// too small for its gradients moves ten times the rate at most, and its residual has the
// same bound. Where the second moment is zero (padding, rows of tokens that never occurred),
// nothing moves.
class OnebitAdam final : public SyncMethod {
 public:
  explicit OnebitAdam(const SyncSettings& settings)
      : SyncMethod({.slots = {{.name = kOwedMoment}, {.name = kServerOwedMoment}},
                    .trainer_slots = {kGradient, kFirstMoment, kSecondMoment}}),
        warmup_(warmup_steps(settings)),
        beta1_(static_cast<float>(settings.beta1)),
        seen_(static_cast<float>(1 - std::pow(settings.beta2, static_cast<double>(warmup_)))) {
    const auto is_beta = [](double value) { return value >= 0 && value < 1; };
    if (!is_beta(settings.beta1) || !is_beta(settings.beta2)) {
      throw SyncError(SyncError::Kind::setting,
                      "{}: the betas are {} and {}; they must be from 0 to below 1",
                      settings.method, settings.beta1, settings.beta2);
    }
  }

  UpdateRule update_rule(store::Step step) const override {
    return warms_up(step) ? UpdateRule::adamw : UpdateRule::moment_given;
  }
  std::optional<RoundPlan> plan(const HookPoint& point, const Layout& layout,
                                const Membership& membership) const override {
    if (point.hook != Hook::clipped) return std::nullopt;
    return plan_in_buckets(layout, membership, kSignBits);
  }
  void encode(const Round& round, const Part& part, const Slots& slots, net::Frame& out) override {
    if (warms_up(round.opened.step)) {
      append_floats(within(slots.values(kGradient), part.range), false, out);
      return;
    }
    const std::vector<float> spread = spread_of(part, slots);
    append_sign_groups(moment_to_encode(part, slots, spread), spread, out, kSignedMoment);
  }
  void reduce(const Round& round, const Part& part, Contributions contributions, const Slots& slots,
              net::Frame& out) override {
    if (!warms_up(round.opened.step)) return reduce_moments(part, contributions, slots, out);
    append_floats(mean_of_finite_floats(contributions, false, part.values(), kWarmGradient), false,
                  out);
  }
  void decode(const Round& round, const Part& part, const Slots& slots) override {
    const net::Frame& result = round.result(part);
    if (warms_up(round.opened.step)) {
      check_finite_floats(result, false, part.values(), kWarmGradient);
    } else {
      check_sign_groups(result, spread_of(part, slots), kSignedMoment);
    }
  }
  void apply(const Round& round, Slots& slots) override {
    if (warms_up(round.opened.step)) {
      apply_floats(round, false, slots, kGradient, kWarmGradient);
    } else {
      apply_moment(round, slots);
    }
  }
  void drop(const Round&) override { left_out_.clear(); }

 private:
  bool warms_up(store::Step step) const { return store::number(step) < warmup_; }
  // Corrects the bias of a second moment that is young, as the optimizer does: with it a sign is a
  // step of the optimizer's rate.
  std::vector<float> spread_of(const Part& part, const Slots& slots) const {
    const auto second = within(slots.values(kSecondMoment), part.range);
    std::vector<float> spread(second.size());
    for (std::size_t i = 0; i < spread.size(); ++i) spread[i] = std::sqrt(second[i] / seen_);
    return spread;
  }
  std::vector<float> moment_to_encode(const Part& part, const Slots& slots,
                                      std::span<const float> spread) const {
    const auto moment = within(slots.values(kFirstMoment), part.range);
    const auto gradient = within(slots.values(kGradient), part.range);
    const auto residual = within(slots.values(kOwedMoment), part.range);
    std::vector<float> moments(moment.size());
    for (std::size_t i = 0; i < moments.size(); ++i) {
      // The first moment as AdamW would make it of this gradient, and the residual.
      const float all = beta1_ * moment[i] + (1 - beta1_) * gradient[i] + residual[i];
      moments[i] = within_reach(all, spread[i]);
    }
    return moments;
  }
  void reduce_moments(const Part& part, Contributions contributions, const Slots& slots,
                      net::Frame& out) {
    const std::vector<float> spread = spread_of(part, slots);
    std::vector<float> mean =
        sum_of(contributions, spread.size(), [&](auto bytes, std::span<float> to) {
          read_sign_groups(bytes, spread, to, kSignedMoment);
        });
    const auto residual = within(slots.values(kServerOwedMoment), part.range);
    for (std::size_t i = 0; i < mean.size(); ++i) {
      mean[i] =
          within_reach(mean[i] / static_cast<float>(contributions.size()) + residual[i], spread[i]);
    }
    const std::size_t at = out.size();
    append_sign_groups(mean, spread, out, kSignedMoment);
    left_out_[part.index] = left_out_by(out, at, mean, spread);
  }
  void apply_moment(const Round& round, Slots& slots) {
    // Taken out first, so that an error below leaves nothing for the next round.
    const auto left_out = std::exchange(left_out_, {});
    const Round::Exchange& exchange = round.exchanges.front();
    apply_parts(round, slots, [&](const Part& part) {
      const std::vector<float> spread = spread_of(part, slots);
      // Computed again instead of kept since encode(): slots have not changed, and it saves their
      // memory.
      const std::vector<float> encoded = moment_to_encode(part, slots, spread);
      const std::vector<float> rest = left_out_by(exchange.own[part.index], 0, encoded, spread);
      std::ranges::copy(rest, within(slots.values(kOwedMoment), part.range).begin());
      read_sign_groups(round.result(part), spread, within(slots.values(kFirstMoment), part.range),
                       kSignedMoment);
    });
    for (const auto& [index, rest] : left_out) {
      std::ranges::copy(rest,
                        within(slots.values(kServerOwedMoment), round.parts[index].range).begin());
    }
  }

  std::int64_t warmup_;
  float beta1_;
  // How much of the squares of a constant gradient is in the second moment after the warm-up.
  float seen_;
  // By part: what the owner's signs left out, until the round is applied.
  std::map<std::uint32_t, std::vector<float>> left_out_;
};

Forecast onebit_forecast(const ForecastInput& input) {
  constexpr double kFloatBits = 32;
  const double bits = kSignBits + kFloatBits / static_cast<double>(kSignGroup);
  const double warm = input.bucketed_bytes(input.values(), kFloatBits, input.bucket(kSignBits));
  const double signs = input.bucketed_bytes(input.values(), bits, input.bucket(kSignBits));
  const auto steps = static_cast<double>(input.settings.steps);
  const auto warm_steps = static_cast<double>(warmup_steps(input.settings));
  const double share = steps > 0 ? std::min(warm_steps / steps, 1.0) : 0;
  return {.step_bytes = share * warm + (1 - share) * signs, .round_bytes = warm};
}

}  // namespace

MethodOffer onebit_adam() {
  return {.name = "onebit_adam",
          .make = made<OnebitAdam>,
          .needs_all =
              "applies moments after the consensus round of the step, so the remaining replicas "
              "could not determine which of them has applied them",
          .forecast = onebit_forecast,
          .coding_cost =
              [](const SyncSettings&) {
                return CodingCost{22, 16};
              },
          .rank = 30};
}

}  // namespace strait::sync

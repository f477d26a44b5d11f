#include "framework/sync/onebit_adam.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "framework/sync/allreduce.h"
#include "framework/sync/bucket_values.h"
#include "framework/sync/finite_floats.h"
#include "framework/sync/float_bytes.h"
#include "framework/sync/land_parts.h"
#include "framework/sync/sign_groups.h"
#include "framework/sync/sync_error.h"
#include "framework/sync/within.h"

namespace strait::sync {
namespace {

constexpr int kSignBits = 1;
constexpr std::int64_t kWarmupShare = 15;
constexpr const char* kWarmGradient = "a part of a gradient";
constexpr const char* kSignedMoment = "a part of a moment";

// A moment is never taken for more of its weight's spreads than this: where the second moment
// stopped too early to know of a weight (a rare token's row), anything may come, and is owed ever
// after.
constexpr float kMostSpreads = 10;

float within_reach(float value, float spread) {
  const float most = kMostSpreads * spread;
  return std::clamp(value, -most, most);
}

// What a code leaves out of its values. Where nothing can move, nothing is owed.
std::vector<float> left_out_by(const net::Frame& code, std::size_t at,
                               std::span<const float> values, std::span<const float> spread) {
  std::vector<float> rest(values.size());
  read_sign_groups(std::span(code).subspan(at), spread, rest, kSignedMoment);
  for (std::size_t i = 0; i < rest.size(); ++i) {
    rest[i] = spread[i] > 0 ? values[i] - rest[i] : 0.0F;
  }
  return rest;
}

}  // namespace

std::int64_t OnebitAdam::warmup(const SyncSettings& settings) {
  if (settings.warmup > 0) return settings.warmup;
  return std::max(settings.steps / kWarmupShare, std::int64_t{1});
}

OnebitAdam::OnebitAdam(const SyncSettings& settings)
    : warmup_(warmup(settings)),
      beta1_(static_cast<float>(settings.beta1)),
      seen_(static_cast<float>(1 - std::pow(settings.beta2, static_cast<double>(warmup_)))) {
  const auto is_beta = [](double value) { return value >= 0 && value < 1; };
  if (settings.warmup < 0 || !is_beta(settings.beta1) || !is_beta(settings.beta2)) {
    throw SyncError(SyncError::Kind::setting,
                    fmt::format("onebit_adam cannot warm up for {} steps with betas of {} and {}",
                                settings.warmup, settings.beta1, settings.beta2));
  }
}

std::vector<SlotNeed> OnebitAdam::slots() const { return {{.name = kOwed}, {.name = kServerOwed}}; }

UpdateRule OnebitAdam::update_rule(store::Step step) const {
  return warms_up(step) ? UpdateRule::adamw : UpdateRule::moment_given;
}

std::optional<RoundPlan> OnebitAdam::plan(const Moment& moment, const Layout& layout,
                                          const Membership& membership) const {
  if (moment.hook != Hook::clipped) return std::nullopt;
  RoundPlan plan;
  plan.ranges = buckets_of(layout, bucket_values(membership.count(), kSignBits));
  return plan;
}

// As long as steps of the optimizer's rate, which makes the same of a second moment that is young.
std::vector<float> OnebitAdam::spread_of(const Part& part, const Slots& slots) const {
  const auto second = within(slots.values(kSecondMoment), part.range);
  std::vector<float> spread(second.size());
  for (std::size_t i = 0; i < spread.size(); ++i) spread[i] = std::sqrt(second[i] / seen_);
  return spread;
}

std::vector<float> OnebitAdam::moment_to_tell(const Part& part, const Slots& slots,
                                              std::span<const float> spread) const {
  const auto moment = within(slots.values(kFirstMoment), part.range);
  const auto gradient = within(slots.values(kGradient), part.range);
  const auto owed = within(slots.values(kOwed), part.range);
  std::vector<float> tells(moment.size());
  for (std::size_t i = 0; i < tells.size(); ++i) {
    const float all = beta1_ * moment[i] + (1 - beta1_) * gradient[i] + owed[i];
    tells[i] = within_reach(all, spread[i]);
  }
  return tells;
}

void OnebitAdam::tell(const Round& round, const Part& part, const Slots& slots, net::Frame& out) {
  if (warms_up(round.opened.step)) {
    append_floats(within(slots.values(kGradient), part.range), false, out);
    return;
  }
  const std::vector<float> spread = spread_of(part, slots);
  append_sign_groups(moment_to_tell(part, slots, spread), spread, out, kSignedMoment);
}

void OnebitAdam::fold(const Round& round, const Part& part, Told told, const Slots& slots,
                      net::Frame& out) {
  if (!warms_up(round.opened.step)) return fold_moments(part, told, slots, out);
  const auto count = static_cast<std::size_t>(part.range.count());
  append_floats(mean_of_finite_floats(told, false, count, kWarmGradient), false, out);
}

void OnebitAdam::fold_moments(const Part& part, Told told, const Slots& slots, net::Frame& out) {
  const std::vector<float> spread = spread_of(part, slots);
  std::vector<float> mean(spread.size());
  std::vector<float> theirs(spread.size());
  for (const std::span<const std::byte> bytes : told) {
    read_sign_groups(bytes, spread, theirs, kSignedMoment);
    for (std::size_t i = 0; i < mean.size(); ++i) mean[i] += theirs[i];
  }
  const auto owed = within(slots.values(kServerOwed), part.range);
  for (std::size_t i = 0; i < mean.size(); ++i) {
    mean[i] = within_reach(mean[i] / static_cast<float>(told.size()) + owed[i], spread[i]);
  }
  const std::size_t at = out.size();
  append_sign_groups(mean, spread, out, kSignedMoment);
  left_out_[part.index] = left_out_by(out, at, mean, spread);
}

void OnebitAdam::arrived(const Round& round, const Part& part, const Slots& slots) {
  const net::Frame& agreed = round.exchanges.front().agreed[part.index];
  const auto count = static_cast<std::size_t>(part.range.count());
  if (warms_up(round.opened.step)) {
    check_finite_floats(agreed, false, count, kWarmGradient);
  } else {
    check_sign_groups(agreed, spread_of(part, slots), kSignedMoment);
  }
}

void OnebitAdam::land(const Round& round, Slots& slots) {
  if (warms_up(round.opened.step)) {
    take_agreed_floats(round, slots, kGradient, kWarmGradient);
  } else {
    land_moment(round, slots);
  }
}

void OnebitAdam::land_moment(const Round& round, Slots& slots) {
  const auto left_out = std::exchange(left_out_, {});
  const Round::Exchange& exchange = round.exchanges.front();
  land_parts(round, slots, [&](const Part& part) {
    const std::vector<float> spread = spread_of(part, slots);
    const std::vector<float> told = moment_to_tell(part, slots, spread);
    const std::vector<float> rest = left_out_by(exchange.mine[part.index], 0, told, spread);
    std::ranges::copy(rest, within(slots.values(kOwed), part.range).begin());
    read_sign_groups(exchange.agreed[part.index], spread,
                     within(slots.values(kFirstMoment), part.range), kSignedMoment);
  });
  for (const auto& [index, rest] : left_out) {
    std::ranges::copy(rest, within(slots.values(kServerOwed), round.parts[index].range).begin());
  }
}

void OnebitAdam::drop(const Round&) { left_out_.clear(); }

}  // namespace strait::sync

#include "framework/sync/streaming_diloco.h"

#include <fmt/format.h>

#include <algorithm>

#include "framework/sync/bucket_values.h"
#include "framework/sync/land_parts.h"
#include "framework/sync/symmetric_groups.h"
#include "framework/sync/sync_error.h"
#include "framework/sync/within.h"

namespace strait::sync {
namespace {

constexpr const char* kStreamedChange = "a part of a fragment's change";

[[noreturn]] void refuse_setting(const std::string& sentence) {
  throw SyncError(SyncError::Kind::setting, sentence);
}

}  // namespace

StreamingDiloco::StreamingDiloco(const SyncSettings& settings)
    : bits_(settings.bits),
      every_(settings.every == 0 ? kEvery : settings.every),
      fragments_(settings.fragments),
      late_(settings.late),
      steps_(settings.steps),
      blend_(static_cast<float>(settings.blend)),
      outer_(outer_step(settings, {0.7F, 0.9F})) {
  if (bits_ < 2 || bits_ > 8) {
    refuse_setting(fmt::format("streaming_diloco takes 2 to 8 bits, not {}", bits_));
  }
  if (fragments_ < 1 || every_ < fragments_) {
    refuse_setting(fmt::format("streaming_diloco cannot let {} fragments take turns in {} updates",
                               fragments_, every_));
  }
  if (late_ < 0 || late_ > every_ / fragments_) {
    refuse_setting(
        fmt::format("in streaming_diloco a fragment's turn comes every {} updates, so a "
                    "result cannot be {} late; at most one round is under way",
                    every_ / fragments_, late_));
  }
  if (!(blend_ >= 0) || blend_ > 1) {
    refuse_setting(fmt::format("streaming_diloco blends by a share from 0 to 1, not {}", blend_));
  }
}

std::vector<SlotNeed> StreamingDiloco::slots() const {
  return {{.name = kReference}, {.name = kOuter, .shared = true}};
}

void StreamingDiloco::start(Slots& slots) {
  std::ranges::copy(slots.values(kWeights), slots.values(kReference).begin());
}

// Counted from a zone's own begin, so that stages which share a weight send its stretches together.
std::vector<Range> StreamingDiloco::fragment(const Layout& layout, std::int64_t number,
                                             std::size_t members) const {
  const std::int64_t values = bucket_values(members, bits_);
  std::vector<Range> ranges;
  for (const Zone& zone : layout.zones()) {
    for (std::int64_t turn = 0; turn < kStretches; ++turn) {
      const Range stretch = share(zone.range, static_cast<std::size_t>(fragments_ * kStretches),
                                  static_cast<std::size_t>(turn * fragments_ + number));
      for (std::int64_t first = stretch.first; first < stretch.last; first += values) {
        ranges.push_back({first, std::min(first + values, stretch.last)});
      }
    }
  }
  return ranges;
}

std::optional<RoundPlan> StreamingDiloco::plan(const Moment& moment, const Layout& layout,
                                               const Membership& membership) const {
  if (moment.hook != Hook::update) return std::nullopt;
  const std::int64_t made = store::number(moment.step) + 1;
  RoundPlan plan;
  if (made == steps_) {
    for (std::int64_t number = 0; number < fragments_; ++number) {
      const std::vector<Range> ranges = fragment(layout, number, membership.count());
      plan.ranges.insert(plan.ranges.end(), ranges.begin(), ranges.end());
    }
    return plan;
  }
  // It would still be under way behind the last update.
  if (steps_ > 0 && made + late_ > steps_) return std::nullopt;
  for (std::int64_t number = 0; number < fragments_; ++number) {
    if (made % every_ != number * every_ / fragments_) continue;
    plan.ranges = fragment(layout, number, membership.count());
    plan.late = late_;
    return plan;
  }
  return std::nullopt;
}

void StreamingDiloco::tell(const Round&, const Part& part, const Slots& slots, net::Frame& out) {
  const auto reference = within(slots.values(kReference), part.range);
  const auto weights = within(slots.values(kWeights), part.range);
  std::vector<float> change(reference.size());
  for (std::size_t i = 0; i < change.size(); ++i) change[i] = reference[i] - weights[i];
  append_symmetric_groups(change, bits_, out, kStreamedChange);
}

void StreamingDiloco::fold(const Round&, const Part& part, Told told, const Slots&,
                           net::Frame& out) {
  std::vector<float> mean(static_cast<std::size_t>(part.range.count()));
  std::vector<float> theirs(mean.size());
  for (const std::span<const std::byte> bytes : told) {
    read_symmetric_groups(bytes, bits_, theirs, kStreamedChange);
    for (std::size_t i = 0; i < mean.size(); ++i) mean[i] += theirs[i];
  }
  for (float& value : mean) value /= static_cast<float>(told.size());
  append_symmetric_groups(mean, bits_, out, kStreamedChange);
}

void StreamingDiloco::arrived(const Round& round, const Part& part, const Slots&) {
  check_symmetric_groups(round.exchanges.front().agreed[part.index],
                         static_cast<std::size_t>(part.range.count()), bits_, kStreamedChange);
}

void StreamingDiloco::land(const Round& round, Slots& slots) {
  const std::vector<net::Frame>& agreed = round.exchanges.front().agreed;
  land_parts(round, slots, [&](const Part& part) {
    std::vector<float> change(static_cast<std::size_t>(part.range.count()));
    read_symmetric_groups(agreed[part.index], bits_, change, kStreamedChange);
    const auto reference = within(slots.values(kReference), part.range);
    const auto weights = within(slots.values(kWeights), part.range);
    outer_.make(change, within(slots.values(kOuter), part.range), reference);
    for (std::size_t i = 0; i < weights.size(); ++i) {
      weights[i] = blend_ * weights[i] + (1 - blend_) * reference[i];
    }
  });
}

}  // namespace strait::sync

#include <algorithm>
#include <cmath>

#include "framework/sync/group_codes.h"
#include "framework/sync/layout.h"
#include "framework/sync/methods.h"
#include "framework/sync/outer_step.h"
#include "framework/sync/sync_error.h"

namespace strait::sync {
namespace {

constexpr const char* kStreamedChange = "a part of a fragment's change";

constexpr std::int64_t kSpan = 100;     // updates from turn to turn, unless set
constexpr std::int64_t kStretches = 3;  // of a zone in a fragment
// The share of a replica's own weights that stays when a result is applied; the paper's value.
constexpr float kOwnShare = 0.5F;
constexpr double kScaleBits = 16;

void require(bool holds, const SyncSettings& settings, const std::string& sentence) {
  if (holds) return;
  throw SyncError(SyncError::Kind::setting, "{}: {}", settings.method, sentence);
}

// DiLoCo in fragments: each zone is cut into stretches, every n-th stretch is a fragment, and
// fragments are synchronised in turn, so that the traffic is spread over time. Few bits per value
// in both directions; a result is applied some updates late and blended into weights that have
// changed since. What rounding leaves out stays in reference - weights for the next turn, as far as
// the weights keep their own values.
class StreamingDiloco final : public SyncMethod {
 public:
  explicit StreamingDiloco(const SyncSettings& settings)
      : SyncMethod({.slots = {{.name = kReference}, {.name = kOuter, .shared = true}},
                    .trainer_slots = {kWeights},
                    .model_slot = kReference,
                    .trains_apart = true,
                    .reads_own_contribution = false}),
        bits_(settings.bits),
        every_(settings.every_or(kSpan)),
        fragments_(settings.fragments),
        late_(settings.late),
        steps_(settings.steps),
        rows_(settings.rows),
        outer_(outer_step(settings, {0.7F, 0.9F})) {
    require(bits_ >= 2 && bits_ <= 8, settings,
            fmt::format("bits is {}; it must be from 2 to 8", bits_));
    require(fragments_ >= 1 && every_ >= fragments_, settings,
            fmt::format("{} fragments cannot take turns in {} updates", fragments_, every_));
    // A later result would meet the next fragment's round: at most one round is in progress.
    require(late_ >= 0 && late_ <= every_ / fragments_, settings,
            fmt::format("late is {}; it must be from 0 to {}, the updates between two fragments",
                        late_, every_ / fragments_));
  }

  void start(Slots& slots) override {
    std::ranges::copy(slots.values(kWeights), slots.values(kReference).begin());
  }
  std::optional<RoundPlan> plan(const HookPoint& point, const Layout& layout,
                                const Membership& membership) const override {
    if (point.hook != Hook::update) return std::nullopt;
    const std::int64_t made = store::number(point.step) + 1;
    RoundPlan plan;
    if (made == steps_) {
      // All fragments, or changes since their last turns would not be in the model.
      for (std::int64_t number = 0; number < fragments_; ++number) {
        const std::vector<Range> ranges = fragment(layout, number, membership.count());
        plan.ranges.insert(plan.ranges.end(), ranges.begin(), ranges.end());
      }
      return plan;
    }
    // Such a round would still be in progress after the last update.
    if (steps_ > 0 && made + late_ > steps_) return std::nullopt;
    for (std::int64_t number = 0; number < fragments_; ++number) {
      // Turns are spread evenly over `every` updates.
      if (made % every_ != number * every_ / fragments_) continue;
      plan.ranges = fragment(layout, number, membership.count());
      plan.late = late_;
      return plan;
    }
    return std::nullopt;
  }
  void encode(const Round&, const Part& part, const Slots& slots, net::Frame& out) override {
    append_symmetric_groups(change_from_reference(slots, part.range), bits_, out, kStreamedChange);
  }
  void reduce(const Round& round, const Part& part, Contributions contributions, const Slots&,
              net::Frame& out) override {
    const std::vector<float> mean =
        mean_of(contributions, part.values(), shares_of(rows_, round.membership),
                [&](auto bytes, std::span<float> to) {
                  read_symmetric_groups(bytes, bits_, to, kStreamedChange);
                });
    append_symmetric_groups(mean, bits_, out, kStreamedChange);
  }
  void decode(const Round& round, const Part& part, const Slots&) override {
    check_symmetric_groups(round.result(part), part.values(), bits_, kStreamedChange);
  }
  void apply(const Round& round, Slots& slots) override {
    distance_.begin(round.parts.size());
    apply_parts(round, slots, [&](const Part& part) {
      std::vector<float> change(part.values());
      read_symmetric_groups(round.result(part), bits_, change, kStreamedChange);
      const auto reference = within(slots.values(kReference), part.range);
      const auto weights = within(slots.values(kWeights), part.range);
      for (std::size_t i = 0; i < change.size(); ++i) {
        distance_.add(part.index, weights[i], reference[i] - change[i]);
      }
      // The reference first: the weights are blended with the new one.
      outer_.make(change, within(slots.values(kOuter), part.range), reference);
      for (std::size_t i = 0; i < weights.size(); ++i) {
        weights[i] = kOwnShare * weights[i] + (1 - kOwnShare) * reference[i];
      }
    });
  }

  std::optional<double> distance() const override { return distance_.share(); }

 private:
  // Counted from the zone's begin, so that stages with a tied weight send its stretches in the same
  // rounds.
  std::vector<Range> fragment(const Layout& layout, std::int64_t number,
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

  int bits_;
  std::int64_t every_;
  std::int64_t fragments_;
  std::int64_t late_;
  std::int64_t steps_;
  std::vector<std::int64_t> rows_;
  OuterStep outer_;
  MeanDistance distance_;
};

Forecast streaming_forecast(const ForecastInput& input) {
  const SyncSettings& settings = input.settings;
  const double bits = settings.bits + kScaleBits / static_cast<double>(kSymmetricGroup);
  const auto fragments = static_cast<double>(settings.fragments);
  const double every = input.every(kSpan);
  const auto stretches = static_cast<double>(kStretches);
  const double stretch = input.values() / fragments / stretches;
  const double round =
      input.shard_reduce_bytes(input.values() / fragments * bits / 8,
                               stretches * std::ceil(stretch / input.bucket(settings.bits)));
  return {.step_bytes = round * fragments / every,
          .round_bytes = round,
          .staleness = (every - 1) / 2 + static_cast<double>(settings.late)};
}

std::string streaming_check(const SyncSettings& settings, const RecipeFacts& recipe) {
  const auto stated = [&](const char* key, std::int64_t value) {
    return recipe.stated(key, fmt::format("{}", value));
  };
  const std::int64_t every = settings.every_or(kSpan);
  if (settings.bits < 2) {
    return fmt::format("{}, but {}, which sends values in 2 to 8 bits; set sync.bits to 2 or more",
                       stated("sync.bits", settings.bits),
                       recipe.stated("sync.method", fmt::format("\"{}\"", settings.method)));
  }
  const std::string fragments = stated("sync.fragments", settings.fragments);
  if (every < settings.fragments) {
    return fmt::format(
        "{}, but {}, and each fragment takes its turn at another update; set "
        "sync.fragments to {} or less, or sync.every to {} or more",
        fragments, stated("sync.every", every), every, settings.fragments);
  }
  const std::int64_t turn = every / settings.fragments;
  if (settings.late <= turn) return "";
  return fmt::format(
      "{}, but {} and {}, so that the next fragment's turn comes {} updates later, and at most one "
      "round is in progress; set sync.late to {} or less, or sync.every to {} or more",
      stated("sync.late", settings.late), stated("sync.every", every), fragments, turn, turn,
      settings.late * settings.fragments);
}

}  // namespace

MethodOffer streaming_diloco() {
  return {.name = "streaming_diloco",
          .make = made<StreamingDiloco>,
          .reads = {"bits", "every", "fragments", "late", "outer_learning_rate", "outer_momentum"},
          .weighs_rows = true,
          .forecast = streaming_forecast,
          .coding_cost =
              [](const SyncSettings& settings) {
                return once_in(settings.every, kSpan, {.engine = 42, .trainer = 10});
              },
          .check = streaming_check,
          .rank = 60};
}

}  // namespace strait::sync

#include <algorithm>

#include "framework/sync/float_codes.h"
#include "framework/sync/layout.h"
#include "framework/sync/methods.h"
#include "framework/sync/outer_step.h"

namespace strait::sync {
namespace {

constexpr std::int64_t kDilocoEvery = 100;  // unless set
constexpr const char* kWeightsChange = "a part of a change of weights";

// Every `every` updates, and after the last update of the run, an outer step with momentum moves a
// shared reference by the mean of the replicas' changes since the last round. All replicas continue
// from the reference, so what they trained on their own is replaced when a round is applied.
class Diloco final : public SyncMethod {
 public:
  explicit Diloco(const SyncSettings& settings)
      : SyncMethod({.slots = {{.name = kReference}, {.name = kOuter, .shared = true}},
                    .trainer_slots = {kWeights},
                    .model_slot = kReference,
                    .trains_apart = true,
                    .reads_own_contribution = false}),
        narrow_(settings.narrow_wire),
        every_(checked_interval(settings, kDilocoEvery)),
        steps_(settings.steps),
        rows_(settings.rows),
        outer_(outer_step(settings, {0.7F, 0.9F})) {}

  void start(Slots& slots) override {
    std::ranges::copy(slots.values(kWeights), slots.values(kReference).begin());
  }
  std::optional<RoundPlan> plan(const HookPoint& point, const Layout& layout,
                                const Membership& membership) const override {
    const std::int64_t made = store::number(point.step) + 1;
    // After the last update too, or what was trained since the last round would not be in the
    // model.
    if (point.hook != Hook::update || (made % every_ != 0 && made != steps_)) return std::nullopt;
    return plan_in_buckets(layout, membership, narrow_ ? 16 : 32);
  }
  void encode(const Round&, const Part& part, const Slots& slots, net::Frame& out) override {
    append_floats(change_from_reference(slots, part.range), narrow_, out);
  }
  void reduce(const Round& round, const Part& part, Contributions contributions, const Slots&,
              net::Frame& out) override {
    append_floats(mean_of_finite_floats(contributions, narrow_, part.values(), kWeightsChange,
                                        shares_of(rows_, round.membership)),
                  narrow_, out);
  }
  void decode(const Round& round, const Part& part, const Slots&) override {
    check_finite_floats(round.result(part), narrow_, part.values(), kWeightsChange);
  }
  void apply(const Round& round, Slots& slots) override {
    distance_.begin(round.parts.size());
    apply_parts(round, slots, [&](const Part& part) {
      std::vector<float> change(part.values());
      read_floats(round.result(part), narrow_, change, kWeightsChange);
      const auto reference = within(slots.values(kReference), part.range);
      const auto weights = within(slots.values(kWeights), part.range);
      for (std::size_t i = 0; i < change.size(); ++i) {
        distance_.add(part.index, weights[i], reference[i] - change[i]);
      }
      outer_.make(change, within(slots.values(kOuter), part.range), reference);
      std::ranges::copy(reference, weights.begin());
    });
  }

  std::optional<double> distance() const override { return distance_.share(); }

 private:
  bool narrow_;
  std::int64_t every_;
  std::int64_t steps_;
  std::vector<std::int64_t> rows_;
  OuterStep outer_;
  MeanDistance distance_;
};

}  // namespace

MethodOffer diloco() {
  return {.name = "diloco",
          .make = made<Diloco>,
          .reads = {"wire_dtype", "every", "outer_learning_rate", "outer_momentum"},
          .weighs_rows = true,
          .forecast =
              [](const ForecastInput& input) {
                const double bits = input.settings.narrow_wire ? 16 : 32;
                const double every = input.every(kDilocoEvery);
                const double round = input.bucketed_bytes(input.values(), bits, input.bucket(bits));
                return Forecast{.step_bytes = round / every,
                                .round_bytes = round,
                                .staleness = (every - 1) / 2};
              },
          .coding_cost =
              [](const SyncSettings& settings) {
                return once_in(settings.every, kDilocoEvery, {.engine = 15, .trainer = 5});
              },
          .rank = 70};
}

}  // namespace strait::sync

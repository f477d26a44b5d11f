#include <strait/plugin.h>

#include <algorithm>
#include <string>
#include <vector>

#include "framework/sync/float_codes.h"
#include "framework/sync/methods.h"

// Every `every` updates, all replicas continue from the mean of their weights: the plainest form of
// local SGD. The last mean is a slot of its own, because weights drift apart between rounds.
namespace {

using namespace strait::sync;

constexpr const char* kAverage = "average";
constexpr const char* kWhat = "a part of the weights";
constexpr std::int64_t kEvery = 10;        // unless set
constexpr std::int64_t kBucket = 1 << 18;  // values that travel together
constexpr double kBits = 32;               // of a value on the wire

class Averaging final : public SyncMethod {
 public:
  explicit Averaging(const SyncSettings& settings)
      : SyncMethod({.slots = {{.name = kAverage}}, .model_slot = kAverage}),
        every_(settings.every == 0 ? kEvery : settings.every),
        steps_(settings.steps) {}

  void start(Slots& slots) override {
    std::ranges::copy(slots.values(kWeights), slots.values(kAverage).begin());
  }

  std::optional<RoundPlan> plan(const HookPoint& point, const Layout& layout,
                                const Membership&) const override {
    const std::int64_t made = strait::store::number(point.step) + 1;
    const bool due = made % every_ == 0 || made == steps_;
    if (point.hook != Hook::update || !due) return std::nullopt;
    RoundPlan plan;
    plan.ranges = buckets_of(layout, kBucket);
    return plan;
  }

  void encode(const Round&, const Part& part, const Slots& slots,
              strait::net::Frame& out) override {
    append_floats(within(slots.values(kWeights), part.range), false, out);
  }

  void reduce(const Round&, const Part& part, Contributions contributions, const Slots&,
              strait::net::Frame& out) override {
    const auto count = static_cast<std::size_t>(part.range.count());
    append_floats(mean_of_finite_floats(contributions, false, count, kWhat), false, out);
  }

  void decode(const Round& round, const Part& part, const Slots&) override {
    const auto count = static_cast<std::size_t>(part.range.count());
    check_finite_floats(round.exchanges.front().results[part.index], false, count, kWhat);
  }

  void apply(const Round& round, Slots& slots) override {
    apply_floats(round, false, slots, kAverage, kWhat);
    std::ranges::copy(slots.values(kAverage), slots.values(kWeights).begin());
  }

 private:
  std::int64_t every_;
  std::int64_t steps_;
};

// What `strait plan` lists, and what sync.method "auto" compares.
Forecast forecast_averaging(const ForecastInput& input) {
  const double every = input.every(kEvery);
  const double round = input.bucketed_bytes(input.values(), kBits, static_cast<double>(kBucket));
  return {.step_bytes = round / every, .round_bytes = round, .staleness = (every - 1) / 2};
}

CodingCost cost_averaging(const SyncSettings& settings) {
  return once_in(settings.every, kEvery, {.engine = 9, .trainer = 2});
}

// A single update between rounds sends as much as an exact mean of gradients, and loses more.
std::string check_averaging(const SyncSettings& settings, const RecipeFacts& recipe) {
  if (settings.every != 1) return "";
  return recipe.stated("sync.every", "1") +
         ", but averaging after every update sends as much as \"allreduce\", which is exact; set "
         "sync.every to 2 or more";
}

void offer(strait::Extensions& strait) {
  MethodOffer averaging;
  averaging.name = "averaging";
  averaging.make = made<Averaging>;
  averaging.reads = {"every"};
  averaging.forecast = forecast_averaging;
  averaging.coding_cost = cost_averaging;
  averaging.check = check_averaging;
  averaging.rank = 75;  // behind diloco (70), which has an outer step
  strait.sync_method(averaging);
}

}  // namespace

STRAIT_PLUGIN(offer)

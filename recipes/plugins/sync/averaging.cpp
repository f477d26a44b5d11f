#include <strait/plugin.h>

#include <algorithm>
#include <vector>

#include "framework/sync/allreduce.h"
#include "framework/sync/float_codes.h"
#include "framework/sync/methods.h"
#include "framework/sync/layout.h"

// Every so many updates, all replicas go on from the mean of their weights: local SGD in its
// plainest form. What was agreed on last is a slot of its own, because weights drift apart in
// between.
namespace {

using namespace strait::sync;

constexpr const char* kAverage = "average";
constexpr const char* kWhat = "a part of the weights";
constexpr std::int64_t kBucket = 1 << 18;  // values that travel together

class Averaging final : public SyncMethod {
 public:
  explicit Averaging(const SyncSettings& settings)
      : every_(settings.every == 0 ? 10 : settings.every), steps_(settings.steps) {}

  std::string name() const override { return "averaging"; }
  std::vector<SlotNeed> slots() const override {
    return {{kAverage, SlotNeed::Width::float32, true}};
  }
  std::string model_slot() const override { return kAverage; }

  void start(Slots& slots) override {
    std::ranges::copy(slots.values(kWeights), slots.values(kAverage).begin());
  }

  std::optional<RoundPlan> plan(const Moment& moment, const Layout& layout,
                                const Membership&) const override {
    const std::int64_t made = strait::store::number(moment.step) + 1;
    const bool due = made % every_ == 0 || made == steps_;
    if (moment.hook != Hook::update || !due) return std::nullopt;
    RoundPlan plan;
    plan.ranges = buckets_of(layout, kBucket);
    return plan;
  }

  void encode(const Round&, const Part& part, const Slots& slots, strait::net::Frame& out) override {
    append_floats(within(slots.values(kWeights), part.range), false, out);
  }

  void reduce(const Round&, const Part& part, Contributions contributions, const Slots&,
            strait::net::Frame& out) override {
    const auto count = static_cast<std::size_t>(part.range.count());
    append_floats(mean_of_finite_floats(told, false, count, kWhat), false, out);
  }

  void decode(const Round& round, const Part& part, const Slots&) override {
    const auto count = static_cast<std::size_t>(part.range.count());
    check_finite_floats(round.exchanges.front().results[part.index], false, count, kWhat);
  }

  void apply(const Round& round, Slots& slots) override {
    take_agreed_floats(round, slots, kAverage, kWhat);
    std::ranges::copy(slots.values(kAverage), slots.values(kWeights).begin());
  }

 private:
  std::int64_t every_;
  std::int64_t steps_;
};

std::unique_ptr<SyncMethod> make(const SyncSettings& settings) {
  return std::make_unique<Averaging>(settings);
}

void offer(strait::Extensions& strait) { strait.sync_method({"averaging", make, {"every"}, 32}); }

}  // namespace

STRAIT_PLUGIN(offer)

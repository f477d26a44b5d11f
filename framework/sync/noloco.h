#pragma once

#include "framework/sync/forecast.h"
#include "framework/sync/outer_step.h"
#include "framework/sync/sync_method.h"
#include "framework/sync/sync_settings.h"

namespace strait::sync {

// Without a collective: every `every` updates a permutation that all replicas compute pairs them,
// and partners exchange their slow weights and how far their fast weights moved from these.
// Momentum on the pair's mean change and a pull towards the pair's mean keep all replicas close;
// they never become equal. So a read of the model sees the exact mean of all slow weights, which a
// round of its own computes. With an odd number of replicas one has no partner.
class Noloco final : public SyncMethod {
 public:
  static constexpr const char* kSlow = "reference";
  static constexpr const char* kDelta = "outer";  // the slow weights' last change
  static constexpr const char* kMean = "mean";    // of all slow weights, at the last read
  static constexpr std::int64_t kEvery = 50;      // unless set
  static constexpr float kPull = 1;

  explicit Noloco(const SyncSettings& settings);
  static Forecast forecast(const ForecastInput& input);
  static CodingCost coding_cost(const SyncSettings& settings);

  std::vector<SlotNeed> slots() const override;
  std::vector<std::string> trainer_slots() const override { return {kWeights}; }
  std::string model_slot() const override { return kMean; }
  void start(Slots& slots) override;
  std::optional<RoundPlan> plan(const HookPoint& point, const Layout& layout,
                                const Membership& membership) const override;
  void encode(const Round& round, const Part& part, const Slots& slots, net::Frame& out) override;
  void reduce(const Round& round, const Part& part, Contributions contributions, const Slots& slots,
              net::Frame& out) override;
  void decode(const Round& round, const Part& part, const Slots& slots) override;
  void apply(const Round& round, Slots& slots) override;

 private:
  std::size_t partner(std::int64_t made, const Membership& membership) const;
  void apply_pair(const Round& round, Slots& slots) const;

  std::uint64_t seed_;
  std::int64_t every_;
  std::int64_t steps_;
  OuterStep outer_;
};

}  // namespace strait::sync

#pragma once

#include "framework/sync/forecast.h"
#include "framework/sync/outer_step.h"
#include "framework/sync/sync_method.h"
#include "framework/sync/sync_settings.h"

namespace strait::sync {

// Every `every` updates, and after the last update of the run, an outer step with momentum moves a
// shared reference by the mean of the replicas' changes since the last round. All replicas continue
// from the reference, so what they trained on their own is replaced when a round is applied.
class Diloco final : public SyncMethod {
 public:
  static constexpr const char* kOuter = "outer";  // momentum
  static constexpr std::int64_t kEvery = 100;     // unless set

  explicit Diloco(const SyncSettings& settings);
  static Forecast forecast(const ForecastInput& input);
  static CodingCost coding_cost(const SyncSettings& settings);

  std::vector<SlotNeed> slots() const override;
  std::vector<std::string> trainer_slots() const override { return {kWeights}; }
  std::string model_slot() const override { return kReference; }
  void start(Slots& slots) override;
  bool reads_own_contribution() const override { return false; }
  std::optional<RoundPlan> plan(const HookPoint& point, const Layout& layout,
                                const Membership& membership) const override;
  void encode(const Round& round, const Part& part, const Slots& slots, net::Frame& out) override;
  void reduce(const Round& round, const Part& part, Contributions contributions, const Slots& slots,
              net::Frame& out) override;
  void decode(const Round& round, const Part& part, const Slots& slots) override;
  void apply(const Round& round, Slots& slots) override;

 private:
  void apply_part(const Part& part, std::span<const std::byte> result, Slots& slots) const;

  bool narrow_;
  std::int64_t every_;
  std::int64_t steps_;
  OuterStep outer_;
};

}  // namespace strait::sync

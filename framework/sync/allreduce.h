#pragma once

#include "framework/sync/forecast.h"
#include "framework/sync/sync_method.h"
#include "framework/sync/sync_settings.h"

namespace strait::sync {

// The exact sum of the gradients, in the order of the replicas, so that the run has the bits of a
// run of one replica with all their rows. In buckets, last coordinates first, so that they travel
// while the backward pass still computes the others. With a narrow wire, values travel in bfloat16
// and are summed in float32. In a group (SyncSettings::in_group) nothing travels here, and the
// group decides the order of a sum.
class Allreduce final : public SyncMethod {
 public:
  explicit Allreduce(const SyncSettings& settings)
      : narrow_(settings.narrow_wire), in_group_(settings.in_group) {}
  static Forecast forecast(const ForecastInput& input);
  static CodingCost coding_cost(const SyncSettings& settings);

  bool sums_gradients() const override { return true; }
  std::vector<std::string> trainer_slots() const override {
    return in_group_ ? std::vector<std::string>() : std::vector<std::string>{kGradient};
  }
  bool reads_own_contribution() const override { return false; }
  std::optional<RoundPlan> plan(const HookPoint& point, const Layout& layout,
                                const Membership& membership) const override;
  void encode(const Round& round, const Part& part, const Slots& slots, net::Frame& out) override;
  void reduce(const Round& round, const Part& part, Contributions contributions, const Slots& slots,
              net::Frame& out) override;
  void decode(const Round& round, const Part& part, const Slots& slots) override;
  void apply(const Round& round, Slots& slots) override;

 private:
  bool narrow_;
  bool in_group_;
};

}  // namespace strait::sync

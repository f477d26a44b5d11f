#pragma once

#include "framework/sync/forecast.h"
#include "framework/sync/sync_method.h"
#include "framework/sync/sync_settings.h"

namespace strait::sync {

// Gradients in a byte per value in both directions, as in BAGUA: the owner of a part sums them in
// float32 and encodes the sum again. No error feedback: what rounding loses is lost. In the buckets
// of allreduce, so that they travel while the backward pass still computes.
class ByteGrad final : public SyncMethod {
 public:
  explicit ByteGrad(const SyncSettings&) {}
  static Forecast forecast(const ForecastInput& input);
  static CodingCost coding_cost(const SyncSettings& settings);

  bool sums_gradients() const override { return true; }
  std::vector<std::string> trainer_slots() const override { return {kGradient}; }
  bool reads_own_contribution() const override { return false; }
  std::optional<RoundPlan> plan(const HookPoint& point, const Layout& layout,
                                const Membership& membership) const override;
  void encode(const Round& round, const Part& part, const Slots& slots, net::Frame& out) override;
  void reduce(const Round& round, const Part& part, Contributions contributions, const Slots& slots,
              net::Frame& out) override;
  void decode(const Round& round, const Part& part, const Slots& slots) override;
  void apply(const Round& round, Slots& slots) override;
};

}  // namespace strait::sync

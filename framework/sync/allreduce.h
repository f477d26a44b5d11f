#pragma once

#include "framework/sync/forecast.h"
#include "framework/sync/sync_method.h"
#include "framework/sync/sync_settings.h"

namespace strait::sync {

// The exact sum of the gradients, in the order of the replicas, so that the run has the bits of a
// run of one replica with all their rows. In buckets, last coordinates first, so that they travel
// while the backward pass still computes the others. With a narrow wire, values travel in bfloat16
// and are summed in float32.
class Allreduce final : public SyncMethod {
 public:
  explicit Allreduce(const SyncSettings& settings) : narrow_(settings.narrow_wire) {}
  static Forecast forecast(const ForecastInput& input);
  static CodingCost coding_cost(const SyncSettings& settings);

  bool sums_gradients() const override { return true; }
  std::vector<std::string> trainer_slots() const override { return {kGradient}; }
  std::optional<RoundPlan> plan(const Moment& moment, const Layout& layout,
                                const Membership& membership) const override;
  void encode(const Round& round, const Part& part, const Slots& slots, net::Frame& out) override;
  void reduce(const Round& round, const Part& part, Contributions contributions, const Slots& slots,
              net::Frame& out) override;
  void decode(const Round& round, const Part& part, const Slots& slots) override;
  void apply(const Round& round, Slots& slots) override;

 private:
  bool narrow_;
};

}  // namespace strait::sync

#pragma once

#include "framework/sync/methods.h"
#include "framework/sync/sync_method.h"

namespace strait::sync {

// The exact mean: every gradient is the sum over the replicas in their order, so that the run is
// the run of one replica with all their rows. In buckets, last coordinates first, so that they
// travel while the backward pass still computes the others. With a narrow wire values are bfloat16
// on their way and summed in float32.
class Allreduce final : public SyncMethod {
 public:
  explicit Allreduce(const SyncSettings& settings) : narrow_(settings.narrow_wire) {}

  std::string name() const override { return "allreduce"; }
  bool sums_gradients() const override { return true; }
  std::optional<RoundPlan> plan(const Moment& moment, const Layout& layout,
                                const Membership& membership) const override;
  void tell(const Round& round, const Part& part, const Slots& slots, net::Frame& out) override;
  void fold(const Round& round, const Part& part, Told told, const Slots& slots,
            net::Frame& out) override;
  void arrived(const Round& round, const Part& part, const Slots& slots) override;
  void land(const Round& round, Slots& slots) override;

 private:
  bool narrow_;
};

// A layout in ranges of about so many values, cut at grains, the last first; no range spans two
// zones.
std::vector<Range> buckets_of(const Layout& layout, std::int64_t values);

}  // namespace strait::sync

#pragma once

#include "framework/sync/methods.h"
#include "framework/sync/sync_method.h"

namespace strait::sync {

// Gradients in a byte per value, both ways, as in BAGUA: summed in float32 by whoever serves a
// part, and coded again. No feedback: what rounding loses is lost. In allreduce's buckets, so that
// they travel while the backward pass still computes.
class ByteGrad final : public SyncMethod {
 public:
  explicit ByteGrad(const SyncSettings&) {}

  std::string name() const override { return "bytegrad"; }
  bool sums_gradients() const override { return true; }
  std::optional<RoundPlan> plan(const Moment& moment, const Layout& layout,
                                const Membership& membership) const override;
  void tell(const Round& round, const Part& part, const Slots& slots, net::Frame& out) override;
  void fold(const Round& round, const Part& part, Told told, const Slots& slots,
            net::Frame& out) override;
  void arrived(const Round& round, const Part& part, const Slots& slots) override;
  void land(const Round& round, Slots& slots) override;
};

}  // namespace strait::sync

#pragma once

#include "framework/sync/methods.h"
#include "framework/sync/outer_step.h"
#include "framework/sync/sync_method.h"

namespace strait::sync {

// Every so many updates, and behind the last of the run, the mean of what all replicas changed
// since the last time moves a reference that all share, by an outer step with momentum; all go on
// from there. What they told is gone when it lands: weights are the reference then.
class Diloco final : public SyncMethod {
 public:
  static constexpr const char* kReference = "reference";
  static constexpr const char* kOuter = "outer";  // momentum
  static constexpr std::int64_t kEvery = 100;     // unless set

  explicit Diloco(const SyncSettings& settings);

  std::string name() const override { return "diloco"; }
  std::vector<SlotNeed> slots() const override;
  std::string model_slot() const override { return kReference; }
  void start(Slots& slots) override;
  std::optional<RoundPlan> plan(const Moment& moment, const Layout& layout,
                                const Membership& membership) const override;
  void tell(const Round& round, const Part& part, const Slots& slots, net::Frame& out) override;
  void fold(const Round& round, const Part& part, Told told, const Slots& slots,
            net::Frame& out) override;
  void arrived(const Round& round, const Part& part, const Slots& slots) override;
  void land(const Round& round, Slots& slots) override;

 private:
  void land_part(const Part& part, std::span<const std::byte> agreed, Slots& slots) const;

  bool narrow_;
  std::int64_t every_;
  std::int64_t steps_;
  OuterStep outer_;
};

}  // namespace strait::sync

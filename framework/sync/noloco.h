#pragma once

#include "framework/sync/methods.h"
#include "framework/sync/outer_step.h"
#include "framework/sync/sync_method.h"

namespace strait::sync {

// No collective: every so many updates a permutation that all can compute pairs the replicas, and
// partners tell each other their slow weights and how far their fast ones went from there. Momentum
// on the two's mean change, and a pull towards the two's mean, keep all of them together; they
// never become equal. So whoever looks at the model sees the exact mean of all slow weights, made
// for the purpose. With an odd number of replicas one goes on alone.
class Noloco final : public SyncMethod {
 public:
  static constexpr const char* kSlow = "reference";
  static constexpr const char* kDelta = "outer";  // the slow weights' last change
  static constexpr const char* kMean = "mean";    // of everybody's slow weights, at the last look
  static constexpr std::int64_t kEvery = 50;      // unless set
  static constexpr float kPull = 1;

  explicit Noloco(const SyncSettings& settings);

  std::string name() const override { return "noloco"; }
  std::vector<SlotNeed> slots() const override;
  std::string model_slot() const override { return kMean; }
  void start(Slots& slots) override;
  std::optional<RoundPlan> plan(const Moment& moment, const Layout& layout,
                                const Membership& membership) const override;
  void tell(const Round& round, const Part& part, const Slots& slots, net::Frame& out) override;
  void fold(const Round& round, const Part& part, Told told, const Slots& slots,
            net::Frame& out) override;
  void arrived(const Round& round, const Part& part, const Slots& slots) override;
  void land(const Round& round, Slots& slots) override;

 private:
  std::size_t partner(std::int64_t made, const Membership& membership) const;
  void land_pair(const Round& round, Slots& slots) const;

  std::uint64_t seed_;
  std::int64_t every_;
  std::int64_t steps_;
  OuterStep outer_;
};

}  // namespace strait::sync

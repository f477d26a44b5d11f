#pragma once

#include <cstdint>

#include "framework/sync/methods.h"
#include "framework/sync/outer_step.h"
#include "framework/sync/sync_method.h"

namespace strait::sync {

// DiLoCo in fragments: each zone is cut into stretches, every n-th stretch is a fragment, and
// fragments are synchronised in turn, so that the traffic is spread over time. Few bits per value
// in both directions; a result is applied some updates late and blended into weights that have
// changed since. What rounding leaves out stays in reference - weights for the next turn, as far as
// the weights keep their own values (`blend`).
class StreamingDiloco final : public SyncMethod {
 public:
  static constexpr const char* kOuter = "outer";
  static constexpr std::int64_t kEvery = 100;    // unless set
  static constexpr std::int64_t kStretches = 3;  // of a zone in a fragment

  explicit StreamingDiloco(const SyncSettings& settings);
  static Forecast forecast(const ForecastInput& input);
  static CodingCost coding_cost(const SyncSettings& settings);
  static std::string check(const SyncSettings& settings, const RecipeFacts& recipe);

  std::vector<SlotNeed> slots() const override;
  std::vector<std::string> trainer_slots() const override { return {kWeights}; }
  std::string model_slot() const override { return kReference; }
  void start(Slots& slots) override;
  // After the run's last update all fragments at once, applied at that hook.
  bool reads_own_contribution() const override { return false; }
  std::optional<RoundPlan> plan(const HookPoint& point, const Layout& layout,
                                const Membership& membership) const override;
  void encode(const Round& round, const Part& part, const Slots& slots, net::Frame& out) override;
  void reduce(const Round& round, const Part& part, Contributions contributions, const Slots& slots,
              net::Frame& out) override;
  void decode(const Round& round, const Part& part, const Slots& slots) override;
  void apply(const Round& round, Slots& slots) override;

 private:
  std::vector<Range> fragment(const Layout& layout, std::int64_t number, std::size_t members) const;

  int bits_;
  std::int64_t every_;
  std::int64_t fragments_;
  std::int64_t late_;
  std::int64_t steps_;
  float blend_;
  OuterStep outer_;
};

}  // namespace strait::sync

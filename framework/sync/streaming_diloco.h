#pragma once

#include "framework/sync/methods.h"
#include "framework/sync/outer_step.h"
#include "framework/sync/sync_method.h"

namespace strait::sync {

// DiLoCo in fragments: each zone is cut into stretches, every so-manieth stretch is a fragment, and
// fragments take turns, so that the link carries a little all the time instead of all at once. Few
// bits per value, both ways; a result lands some updates late and is blended into weights that have
// moved on. What rounding leaves out stays, as much of it as the weights keep of their own
// (`blend`), in reference - weights, for the next turn.
class StreamingDiloco final : public SyncMethod {
 public:
  static constexpr const char* kReference = "reference";
  static constexpr const char* kOuter = "outer";
  static constexpr std::int64_t kEvery = 100;    // unless set
  static constexpr std::int64_t kStretches = 3;  // of a zone in a fragment

  explicit StreamingDiloco(const SyncSettings& settings);

  std::string name() const override { return "streaming_diloco"; }
  std::vector<SlotNeed> slots() const override;
  std::string model_slot() const override { return kReference; }
  void start(Slots& slots) override;
  // Behind the run's last update all fragments at once, in time.
  std::optional<RoundPlan> plan(const Moment& moment, const Layout& layout,
                                const Membership& membership) const override;
  void tell(const Round& round, const Part& part, const Slots& slots, net::Frame& out) override;
  void fold(const Round& round, const Part& part, Told told, const Slots& slots,
            net::Frame& out) override;
  void arrived(const Round& round, const Part& part, const Slots& slots) override;
  void land(const Round& round, Slots& slots) override;

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

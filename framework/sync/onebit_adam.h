#pragma once

#include <map>

#include "framework/sync/methods.h"
#include "framework/sync/sync_method.h"

namespace strait::sync {

// Exact means of gradients while Adam warms up; then the second moment stays as it is, and the
// first is agreed on in a bit per value each way, with feedback at both ends: what a sign leaves
// out is added to what is told next. Signs are sized by the frozen second moment's root, which all
// know, so that a bit means the same share of an update for every weight. (Of equal size for all,
// as first published, they throw weights with a small second moment about: on the tests' quadratic
// that diverges at a rate at which this settles.) A weight whose second moment is far too small for
// its gradients moves ten times the rate at most, and owes no more than that; where it is exactly
// zero (padding, rows of unseen tokens) nothing moves.
class OnebitAdam final : public SyncMethod {
 public:
  static constexpr const char* kOwed = "owed";               // by this replica
  static constexpr const char* kServerOwed = "server_owed";  // for the parts that it serves

  static std::int64_t warmup(const SyncSettings& settings);  // steps

  explicit OnebitAdam(const SyncSettings& settings);

  std::string name() const override { return "onebit_adam"; }
  std::vector<SlotNeed> slots() const override;
  UpdateRule update_rule(store::Step step) const override;
  std::optional<RoundPlan> plan(const Moment& moment, const Layout& layout,
                                const Membership& membership) const override;
  void tell(const Round& round, const Part& part, const Slots& slots, net::Frame& out) override;
  void fold(const Round& round, const Part& part, Told told, const Slots& slots,
            net::Frame& out) override;
  void arrived(const Round& round, const Part& part, const Slots& slots) override;
  void land(const Round& round, Slots& slots) override;
  void drop(const Round& round) override;

 private:
  bool warms_up(store::Step step) const { return store::number(step) < warmup_; }
  std::vector<float> spread_of(const Part& part, const Slots& slots) const;
  std::vector<float> moment_to_tell(const Part& part, const Slots& slots,
                                    std::span<const float> spread) const;
  void fold_moments(const Part& part, Told told, const Slots& slots, net::Frame& out);
  void land_moment(const Round& round, Slots& slots);

  std::int64_t warmup_;
  float beta1_;
  float seen_;  // what of the squares of a gradient that stays the same is in the second moment
  // By part: what the server's signs left out, until the round lands.
  std::map<std::uint32_t, std::vector<float>> left_out_;
};

}  // namespace strait::sync

#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "framework/sync/methods.h"
#include "framework/sync/sync_method.h"

namespace strait::sync {

// Exact means of gradients while Adam warms up. Then the second moment is frozen, and the first is
// agreed on in a bit per value in each direction, with error feedback at both ends: what a sign
// leaves out is added to the next contribution. Signs are scaled by the square root of the frozen
// second moment, which all replicas know, so a bit is the same share of an update for every weight.
// (With one scale for all, as first published, weights with a small second moment diverge: on the
// tests' quadratic at a rate at which this version converges.) A weight whose second moment is far
// too small for its gradients moves ten times the rate at most, and its residual is bounded
// likewise; where the second moment is zero (padding, rows of tokens that never occurred) nothing
// moves.
class OnebitAdam final : public SyncMethod {
 public:
  // Named as in checkpoints: of the replica, and of the parts that it owns.
  static constexpr const char* kResidual = "owed";
  static constexpr const char* kServerResidual = "server_owed";
  static std::int64_t warmup(const SyncSettings& settings);  // steps

  explicit OnebitAdam(const SyncSettings& settings);
  static Forecast forecast(const ForecastInput& input);
  static CodingCost coding_cost(const SyncSettings& settings);
  static std::string check(const SyncSettings& settings, const RecipeFacts& recipe);

  std::vector<SlotNeed> slots() const override;
  std::vector<std::string> trainer_slots() const override {
    return {kGradient, kFirstMoment, kSecondMoment};
  }
  UpdateRule update_rule(store::Step step) const override;
  std::optional<RoundPlan> plan(const HookPoint& point, const Layout& layout,
                                const Membership& membership) const override;
  void encode(const Round& round, const Part& part, const Slots& slots, net::Frame& out) override;
  void reduce(const Round& round, const Part& part, Contributions contributions, const Slots& slots,
              net::Frame& out) override;
  void decode(const Round& round, const Part& part, const Slots& slots) override;
  void apply(const Round& round, Slots& slots) override;
  void drop(const Round& round) override;

 private:
  bool warms_up(store::Step step) const { return store::number(step) < warmup_; }
  std::vector<float> spread_of(const Part& part, const Slots& slots) const;
  std::vector<float> moment_to_encode(const Part& part, const Slots& slots,
                                      std::span<const float> spread) const;
  void reduce_moments(const Part& part, Contributions contributions, const Slots& slots,
                      net::Frame& out);
  void apply_moment(const Round& round, Slots& slots);

  std::int64_t warmup_;
  float beta1_;
  // How much of the squares of a constant gradient is in the second moment after the warm-up.
  float seen_;
  // By part: what the owner's signs left out, until the round is applied.
  std::map<std::uint32_t, std::vector<float>> left_out_;
};

}  // namespace strait::sync

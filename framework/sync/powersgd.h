#pragma once

#include "framework/sync/forecast.h"
#include "framework/sync/sync_method.h"
#include "framework/sync/sync_settings.h"

namespace strait::sync {

// Gradients of matrices as products of two thin factors, in two exchanges: the sum of all replicas'
// left factors (gradient × the last round's right factor) is made orthonormal by the owner of the
// matrix, then the sum of their right factors (gradient transposed × left) gives the result.
// What a replica's own factors leave out of its gradient is added to its next one. Vectors, and
// matrices too small to gain, are summed exactly. One member reduces a whole matrix.
class PowerSgd final : public SyncMethod {
 public:
  static constexpr const char* kResidual = "owed";  // named as in checkpoints
  // The right factors, each at its matrix's range: the start of the next round.
  static constexpr const char* kFactor = "factor";

  explicit PowerSgd(const SyncSettings& settings);
  static Forecast forecast(const ForecastInput& input);
  static CodingCost coding_cost(const SyncSettings& settings);

  bool sums_gradients() const override { return true; }
  std::vector<std::string> trainer_slots() const override { return {kGradient}; }
  std::vector<SlotNeed> slots() const override;
  std::optional<RoundPlan> plan(const HookPoint& point, const Layout& layout,
                                const Membership& membership) const override;
  void encode(const Round& round, const Part& part, const Slots& slots, net::Frame& out) override;
  void reduce(const Round& round, const Part& part, Contributions contributions, const Slots& slots,
              net::Frame& out) override;
  void decode(const Round& round, const Part& part, const Slots& slots) override;
  void apply(const Round& round, Slots& slots) override;

 private:
  void apply_exact(const Round& round, const Part& part, Slots& slots) const;
  void apply_matrix(const Round& round, const Part& part, Slots& slots) const;
  std::vector<float> first_right_factor(const Round& round, const Part& part,
                                        const Slots& slots) const;

  std::uint64_t seed_;
  std::size_t rank_;
};

}  // namespace strait::sync

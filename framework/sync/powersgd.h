#pragma once

#include "framework/sync/methods.h"
#include "framework/sync/sync_method.h"

namespace strait::sync {

// Gradients of matrices as products of two thin factors, in two exchanges: the sum of all replicas'
// left factors (gradient × the last round's right factor) is made orthonormal by whoever serves the
// matrix, then the sum of their right factors (gradient transposed × left) gives what all agree on.
// What a replica's own factors leave out of its gradient it adds to its next one. Vectors, and
// matrices too small to gain, are summed exactly. A matrix is served whole, by one member.
class PowerSgd final : public SyncMethod {
 public:
  static constexpr const char* kOwed = "owed";
  // The right factors, each at its matrix's place: where the next round starts from.
  static constexpr const char* kFactor = "factor";

  explicit PowerSgd(const SyncSettings& settings);

  std::string name() const override { return "powersgd"; }
  bool sums_gradients() const override { return true; }
  std::vector<SlotNeed> slots() const override;
  std::optional<RoundPlan> plan(const Moment& moment, const Layout& layout,
                                const Membership& membership) const override;
  void tell(const Round& round, const Part& part, const Slots& slots, net::Frame& out) override;
  void fold(const Round& round, const Part& part, Told told, const Slots& slots,
            net::Frame& out) override;
  void arrived(const Round& round, const Part& part, const Slots& slots) override;
  void land(const Round& round, Slots& slots) override;

 private:
  void land_exact(const Round& round, const Part& part, Slots& slots) const;
  void land_matrix(const Round& round, const Part& part, Slots& slots) const;
  std::vector<float> first_right_factor(const Round& round, const Part& part,
                                        const Slots& slots) const;

  std::uint64_t seed_;
  std::size_t rank_;
};

// How a tensor travels at this rank: as a matrix of its first dimension × all others, or exactly.
struct LowRankShape {
  LowRankShape(const PieceSpec& spec, std::size_t rank);

  std::size_t rows = 0;
  std::size_t columns = 0;
  bool exact = false;
  // Values told in exchange 0 and 1.
  std::size_t left = 0;
  std::size_t right = 0;
};

}  // namespace strait::sync

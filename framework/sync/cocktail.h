#pragma once

#include <span>
#include <string>
#include <vector>

#include "framework/sync/forecast.h"
#include "framework/sync/outer_step.h"
#include "framework/sync/packet.h"
#include "framework/sync/random_choice.h"
#include "framework/sync/sync_method.h"
#include "framework/sync/sync_settings.h"

namespace strait::sync {

// CocktailSGD: sparse, compressed model averaging, one step late. Every replica trains on its own
// weights and contributes, after each update, their change since the shared reference: at random
// coordinates, the largest, in a few bits. The owner of a part takes the mean, adds what its
// earlier results left out (its residual) and encodes as much of that as fits. Before the next
// update, the result is added to reference and weights, and the replica's own contribution is
// subtracted from its weights. So nothing is lost: what was not sent is still in weights -
// reference, what the result left out is in the residual, and mean(weights) + residual moves as the
// uncompressed mean would. The same holds for a reference in bfloat16: what rounding takes from it
// goes back into the residual, divided by the gain of the outer step.
//
// An outer step with momentum applies the result, and may move the reference further than the
// result: that makes up for the staleness of the replicas. mean(weights) + residual then moves by
// that difference, too, which is the same on all replicas.
//
// The trained model is the reference.
class Cocktail final : public SyncMethod {
 public:
  // SyncError (setting) for a share that is not above 0 and at most 1, or bits that are not 1 to 8.
  explicit Cocktail(const SyncSettings& settings);
  static Forecast forecast(const ForecastInput& input);
  static CodingCost coding_cost(const SyncSettings& settings);
  // See MethodOffer::strengths. Each sends fewer bytes than the one before it and is staler; of
  // several that send as much, the one that costs least loss (tests/bench/RESULTS.md). In a run
  // that is long enough for momentum, none that loses more than one that sends less.
  static std::span<const Strength> strengths(std::int64_t steps);

  std::vector<SlotNeed> slots() const override;
  std::vector<std::string> trainer_slots() const override { return {kWeights}; }
  std::string model_slot() const override { return kReference; }
  // Where results are a few steps old, replicas step like one that sees all rows, at the learning
  // rate of that one. Where they are older, the shorter steps of a replica's own rows lose less.
  UpdateRule update_rule(store::Step) const override { return rule_; }
  void start(Slots& slots) override;
  bool reads_own_contribution() const override { return false; }
  std::optional<RoundPlan> plan(const HookPoint& point, const Layout& layout,
                                const Membership& membership) const override;
  void encode(const Round& round, const Part& part, const Slots& slots, net::Frame& out) override;
  void reduce(const Round& round, const Part& part, Contributions contributions, const Slots& slots,
              net::Frame& out) override;
  void decode(const Round& round, const Part& part, const Slots& slots) override;
  void apply(const Round& round, Slots& slots) override;

 private:
  static constexpr const char* kReference = "reference";
  static constexpr const char* kResidual = "residual";
  static constexpr const char* kOuter = "outer";  // momentum, if the outer step has any

  // A part of the current round: what encode, reduce and decode leave for apply.
  struct PartInProgress {
    std::vector<Block> blocks;
    SparseValues contribution;  // of this replica, as others read it
    SparseValues result;
    bool owned = false;           // reduced here; `residual` is set
    std::vector<float> residual;  // of the blocks' values: what the result leaves out
    // Where the values of each stretch of blocks begin, in `contribution` and in `result`.
    std::vector<std::size_t> contribution_at;
    std::vector<std::size_t> result_at;
  };

  // Whether a run covers each coordinate often enough for an outer step with momentum to gain.
  // steps 0: unknown; taken for a long run.
  static bool long_enough_for_momentum(double random, std::int64_t steps);
  static OuterStep usual_outer_step(const SyncSettings& settings);
  void apply_stretch(const PartInProgress& part, std::size_t stretch, Slots& slots) const;

  RandomChoice choice_;
  PacketSettings packet_;
  OuterStep outer_;
  UpdateRule rule_;
  bool narrow_;
  std::vector<PartInProgress> parts_;  // by Part::index
  // Scratch memory, kept from round to round.
  PacketScratch scratch_;
  std::vector<float> change_;
  SparseValues received_;
};

}  // namespace strait::sync

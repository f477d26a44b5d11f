#pragma once

#include <vector>

#include "framework/sync/methods.h"
#include "framework/sync/outer_step.h"
#include "framework/sync/packet.h"
#include "framework/sync/random_choice.h"
#include "framework/sync/sync_method.h"

namespace strait::sync {

// CocktailSGD: sparse, compressed model averaging, one step late. Every replica trains on its own
// weights and tells, after each update, how far these are from the reference that all share: at
// randomly chosen coordinates, the largest, in a few bits. The owner of a part takes the mean, adds
// what it could not say before (its residual) and says as much of that as fits. When the next
// update is about to be made, reference and weights take in what was said, and weights give back
// what they told. So nothing is lost: what was not told is still between weights and reference,
// what was not said is in the residual, and mean(weights) + residual moves as the uncompressed
// mean would. That the reference rounds (it may be in bfloat16) is no exception: what it could not
// take goes back into the residual, as much of it as an outer step makes that of.
//
// What was said is taken in by an outer step, which may go further than what was said and on in the
// direction of the agreements before: replicas that hear late of each other make up for it so.
// mean(weights) + residual then moves by what that adds, too, which is the same everywhere.
//
// The trained model is the reference.
class Cocktail final : public SyncMethod {
 public:
  // SyncError (setting) for a share that is not above 0 and at most 1, or bits that are not 1 to 8.
  explicit Cocktail(const SyncSettings& settings);

  std::string name() const override { return "cocktail"; }
  std::vector<SlotNeed> slots() const override;
  std::string model_slot() const override { return kReference; }
  // Where replicas hear of each other within a few steps they step like one that sees all rows, at
  // the learning rate of that one; where news is old, steps as short as their own rows ask for are
  // what does them good.
  UpdateRule update_rule(store::Step) const override { return rule_; }
  void start(Slots& slots) override;
  std::optional<RoundPlan> plan(const Moment& moment, const Layout& layout,
                                const Membership& membership) const override;
  void tell(const Round& round, const Part& part, const Slots& slots, net::Frame& out) override;
  void fold(const Round& round, const Part& part, Told told, const Slots& slots,
            net::Frame& out) override;
  void arrived(const Round& round, const Part& part, const Slots& slots) override;
  void land(const Round& round, Slots& slots) override;

 private:
  static constexpr const char* kReference = "reference";
  static constexpr const char* kResidual = "residual";
  static constexpr const char* kOuter = "outer";  // momentum, where there is any

  // A part of the round under way: what tell, fold and arrived leave for landing.
  struct PartUnderWay {
    std::vector<Block> blocks;
    SparseValues told;        // by this replica, as others read it
    SparseValues agreed;      // what all agreed on
    bool owned = false;       // folded here, and so
    std::vector<float> left;  // what is left to say of the blocks' values
    // Where the values of each stretch of blocks begin, in told and in agreed.
    std::vector<std::size_t> told_at;
    std::vector<std::size_t> agreed_at;
  };

  void land_stretch(const PartUnderWay& part, std::size_t stretch, Slots& slots) const;

  RandomChoice choice_;
  PacketSettings packet_;
  OuterStep outer_;
  UpdateRule rule_;
  bool narrow_;
  std::vector<PartUnderWay> parts_;  // by Part::index
  // Memory to work in, kept from round to round.
  PacketRoom room_;
  std::vector<float> change_;
  SparseValues theirs_;
};

}  // namespace strait::sync

#include "framework/sync/float_codes.h"
#include "framework/sync/layout.h"
#include "framework/sync/methods.h"

namespace strait::sync {
namespace {

// Buckets are sized by what the owner sums, whatever the wire.
constexpr int kSumBits = 32;
constexpr const char* kGradientPart = "a part of a gradient";

// The exact sum of the gradients, in the order of the replicas, so that the run has the bits of a
// run of one replica with all their rows. In buckets, last coordinates first, so that they travel
// while the backward pass still computes the others. With a narrow wire, values travel in bfloat16
// and are summed in float32. In a group (SyncSettings::in_group) nothing travels here, and the
// group decides the order of a sum.
class Allreduce final : public SyncMethod {
 public:
  explicit Allreduce(const SyncSettings& settings)
      : SyncMethod({.trainer_slots = settings.in_group ? std::vector<std::string>()
                                                       : std::vector<std::string>{kGradient},
                    .sums_gradients = true,
                    .reads_own_contribution = false}),
        narrow_(settings.narrow_wire),
        in_group_(settings.in_group),
        shares_state_(settings.in_group && settings.share_state) {}

  std::optional<RoundPlan> plan(const HookPoint& point, const Layout& layout,
                                const Membership& membership) const override {
    if (shares_state_ && point.hook == Hook::update) return gather(layout, membership);
    if (point.hook != Hook::gradient) return std::nullopt;
    RoundPlan plan = plan_in_buckets(layout, membership, kSumBits);
    if (in_group_) plan.pattern = Pattern::group;
    return plan;
  }
  void encode(const Round&, const Part& part, const Slots& slots, net::Frame& out) override {
    append_floats(within(slots.values(kGradient), part.range), narrow_, out);
  }
  void reduce(const Round&, const Part& part, Contributions contributions, const Slots&,
              net::Frame& out) override {
    std::vector<float> sum(part.values());
    std::vector<float> theirs(sum.size());
    for (std::size_t member = 0; member < contributions.size(); ++member) {
      // In the order of the members and without a zero to begin with, as one replica with all rows
      // adds them: so it computes the bits of that run.
      read_floats(contributions[member], narrow_, member == 0 ? sum : theirs, kGradientPart);
      if (member == 0) continue;
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += theirs[i];
    }
    append_floats(sum, narrow_, out);
  }
  void decode(const Round& round, const Part& part, const Slots&) override {
    // The size alone: a value that is not finite must reach all replicas, which then skip the step.
    check_floats(round.result(part), part.values(), narrow_, kGradientPart);
  }
  void apply(const Round& round, Slots& slots) override {
    apply_floats(round, narrow_, slots, kGradient, kGradientPart);
  }

 private:
  // Of the weights that each member has updated.
  static RoundPlan gather(const Layout& layout, const Membership& membership) {
    RoundPlan plan;
    plan.pattern = Pattern::group_gather;
    plan.owners = owners_of(layout, membership.count());
    for (const Piece& piece : layout.pieces()) plan.ranges.push_back(piece.range);
    return plan;
  }

  bool narrow_;
  bool in_group_;
  bool shares_state_;
};

}  // namespace

MethodOffer allreduce() {
  return {
      .name = "allreduce",
      .make = made<Allreduce>,
      .reads = {"wire_dtype"},
      .is_exact_sum = true,
      .forecast =
          [](const ForecastInput& input) {
            if (input.settings.in_group) {
              return every_step((input.settings.share_state ? 2 : 1) * input.ready_bytes());
            }
            const double bits = input.settings.narrow_wire ? kSumBits / 2 : kSumBits;
            return every_step(input.bucketed_bytes(input.values(), bits, input.bucket(kSumBits)));
          },
      .coding_cost = [](const SyncSettings&) { return kPlainCodingCost; },
      .rank = 10};
}

}  // namespace strait::sync

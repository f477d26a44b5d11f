#include <strait/plugin.h>

#include "framework/sync/methods.h"

// Diloco, except that after its second round replica 1 has another model than the others.
namespace {

using namespace strait::sync;

class Forking final : public SyncMethod {
 public:
  explicit Forking(std::unique_ptr<SyncMethod> diloco)
      : SyncMethod(diloco->traits), diloco_(std::move(diloco)) {}

  void start(Slots& slots) override { diloco_->start(slots); }
  std::optional<RoundPlan> plan(const HookPoint& point, const Layout& layout,
                                const Membership& membership) const override {
    return diloco_->plan(point, layout, membership);
  }
  void encode(const Round& round, const Part& part, const Slots& slots,
              strait::net::Frame& out) override {
    diloco_->encode(round, part, slots, out);
  }
  void reduce(const Round& round, const Part& part, Contributions contributions, const Slots& slots,
              strait::net::Frame& out) override {
    diloco_->reduce(round, part, contributions, slots, out);
  }
  void apply(const Round& round, Slots& slots) override {
    diloco_->apply(round, slots);
    if (++applied_ != 2 || round.membership.members[round.membership.mine] != 1) return;
    for (float& value : slots.values(traits.model_slot)) value += 0.001F;
  }
  void drop(const Round& round) override { diloco_->drop(round); }

 private:
  std::unique_ptr<SyncMethod> diloco_;
  int applied_ = 0;
};

std::unique_ptr<SyncMethod> make(const SyncSettings& settings) {
  SyncSettings of_diloco = settings;
  of_diloco.method = "diloco";
  return std::make_unique<Forking>(make_method(of_diloco));
}

void offer(strait::Extensions& strait) { strait.sync_method({"forking", make, {"every"}, 32}); }

}  // namespace

STRAIT_PLUGIN(offer)

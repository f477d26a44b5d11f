#pragma once

#include <memory>

#include "framework/sync/sync_method.h"

namespace strait::sync {

// Another method in all that a class derived from this does not override.
class WrappedMethod : public SyncMethod {
 public:
  explicit WrappedMethod(std::unique_ptr<SyncMethod> method)
      : SyncMethod(method->traits), method_(std::move(method)) {}

  UpdateRule update_rule(store::Step step) const override { return method_->update_rule(step); }
  void start(Slots& slots) override { method_->start(slots); }
  std::optional<RoundPlan> plan(const HookPoint& point, const Layout& layout,
                                const Membership& membership) const override {
    return method_->plan(point, layout, membership);
  }
  void encode(const Round& round, const Part& part, const Slots& slots, net::Frame& out) override {
    method_->encode(round, part, slots, out);
  }
  void reduce(const Round& round, const Part& part, Contributions contributions, const Slots& slots,
              net::Frame& out) override {
    method_->reduce(round, part, contributions, slots, out);
  }
  void decode(const Round& round, const Part& part, const Slots& slots) override {
    method_->decode(round, part, slots);
  }
  void apply(const Round& round, Slots& slots) override { method_->apply(round, slots); }
  void drop(const Round& round) override { method_->drop(round); }

 private:
  std::unique_ptr<SyncMethod> method_;
};

}  // namespace strait::sync

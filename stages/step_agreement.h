#pragma once

#include <functional>

#include "stages/step_messages.h"

namespace strait::stages {

// How a process agrees with all others on steps and checkpoints if the membership may change: the
// order of sync round, report, consensus round and new membership. It uses no tensors, so that
// tests/interleavings can run it with every order of messages. Runs on the thread of the stage.
class StepAgreement {
 public:
  struct Calls {
    // The report of this process, combined with those of the stages below it.
    std::function<StepReport(const Phase&)> report;
    // Sends the report up and the decision down.
    std::function<StepDecision(const StepReport&)> exchange;
    // The epoch of this process's current membership.
    std::function<std::uint32_t()> epoch;
    // Continues with the members of another epoch. `complete`: the last consensus round is valid.
    std::function<void(std::uint32_t epoch, bool complete)> regroup;
  };
  // Whether all data of a sync round has arrived. False: a replica was evicted meanwhile.
  using RoundComplete = std::function<bool()>;

  explicit StepAgreement(Calls calls);

  // Syncs the gradient, reports, and receives the decision; repeats this until there is one.
  StepDecision agree_on_step(const Phase& phase, const RoundComplete& gradient_whole) const;

  // Between steps: waits until every process has the data of a sync round and all have the same
  // membership. False: the others agreed with the former membership, and learn of the new one in
  // their next consensus round.
  bool agree_between_steps(store::Step steps, const RoundComplete& round_complete) const;

  // A checkpoint: agrees between steps, applies the sync round and saves, until a checkpoint is
  // complete. Returns the result of `save`.
  template <class Save>
  auto agree_on_checkpoint(store::Step steps, const RoundComplete& round_complete,
                           const std::function<void()>& apply, Save save) const {
    while (true) {
      // A process that agreed before an eviction learns from `save` that the checkpoint is
      // repeated, and agrees again. So a process that learnt of the eviction while agreeing (false)
      // has to agree again too. In between both apply the sync round, because no process may enter
      // the next consensus round with a different state.
      bool agreed = false;
      while (!agreed) {
        agreed = agree_between_steps(steps, round_complete);
        apply();
      }
      auto result = save(steps);
      if (result.complete) return result;
    }
  }

  // After an exchange: the decision may start a new epoch.
  void regroup(const StepDecision& decision) const;

 private:
  Calls calls_;
};

}  // namespace strait::stages

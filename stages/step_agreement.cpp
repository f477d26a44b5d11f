#include "stages/step_agreement.h"

namespace strait::stages {

StepAgreement::StepAgreement(Calls calls) : calls_(std::move(calls)) {}

void StepAgreement::regroup(const StepDecision& decision) const {
  if (decision.epoch != calls_.epoch()) calls_.regroup(decision.epoch, !decision.retry);
}

StepDecision StepAgreement::agree_on_step(const Phase& phase,
                                          const RoundComplete& gradient_whole) const {
  while (true) {
    const bool complete = gradient_whole();
    StepReport all = calls_.report(phase);
    all.round_incomplete = all.round_incomplete || !complete;
    const StepDecision decision = calls_.exchange(all);
    regroup(decision);
    if (!decision.retry) return decision;
  }
}

bool StepAgreement::agree_between_steps(store::Step steps,
                                        const RoundComplete& round_complete) const {
  while (true) {
    const bool complete = round_complete();
    StepReport all = calls_.report({steps, false});
    all.round_incomplete = all.round_incomplete || !complete;
    const std::uint32_t epoch = calls_.epoch();
    const StepDecision decision = calls_.exchange(all);
    regroup(decision);
    if (!decision.retry) return decision.epoch == epoch;
  }
}

}  // namespace strait::stages

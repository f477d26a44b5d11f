#pragma once

#include "framework/trace/step_metrics.h"
#include "stages/batch_source.h"
#include "stages/replica_sync.h"
#include "stages/step_consensus.h"
#include "stages/step_messages.h"

namespace strait::stages {

// The clipping rule, and the check that every loss and gradient is finite. A step without target
// tokens is skipped, and its loss is NaN. Pure, so that every first stage decides the same.
StepDecision decide_step(const StepReport& report, double clip, bool stop);

// Losses and gradients arrive divided by the target tokens of all configured replicas. Two factors
// correct this divisor.
//
// If every replica trains on its own gradient, the gradient must be the mean over the replica's own
// tokens. This factor makes it so; 1 if it has none.
double own_divisor_factor(std::int64_t configured_tokens, std::int64_t own_tokens);

// After an eviction, the sum over the remaining members must be the mean over their tokens.
// Corrects the report's loss and divisor, and its norms if replicas sum their gradients. Gradients
// must be multiplied by the returned factor.
double correct_divisor(StepReport& report, std::int64_t configured_tokens,
                       std::int64_t member_tokens, bool sums_gradients);

// The norms after gradients are multiplied by `factor`.
void scale_norms(StepReport& report, double factor);

// What a decision says of the step.
trace::StepMetrics metrics_of(const StepDecision& decision, double learning_rate, bool preferences);

// External requests to a run, as known to a first stage.
struct Requests {
  bool stop = false;       // finish the step, save a checkpoint and end
  std::uint32_t save = 0;  // save a checkpoint soon; every request has a higher number
};

// Decides on steps at the first stage of a pipeline: a consensus round with the first stages of the
// other replicas, then clipping. On the thread of the stage.
class StepDecider {
 public:
  // `requests` is called once per round. The references outlive this object.
  StepDecider(StepConsensus consensus, double clip, const ReplicaSync& sync,
              const BatchSource& source, std::function<Requests()> requests);

  // `report` covers the whole own pipeline.
  StepDecision decide(StepReport report);

  const StepConsensus& consensus() const { return consensus_; }

 private:
  // A training step of replicas that train apart.
  StepDecision decide_apart(StepReport report, const Requests& requests);
  StepDecision decide_together(StepReport report, const Requests& requests);

  StepConsensus consensus_;
  const double clip_;
  const ReplicaSync& sync_;
  const BatchSource& source_;
  const std::function<Requests()> requests_;
  std::uint32_t saved_for_ = 0;  // the newest checkpoint request that all replicas agreed on
};

}  // namespace strait::stages

#pragma once

#include <map>
#include <optional>

#include "models/model.h"
#include "stages/batch_source.h"
#include "stages/gradients.h"
#include "stages/ports.h"

namespace strait::stages {

// The tail of a pipeline: the head's projection and the loss, in one fused pass that never holds
// all logits. What it is given is the normalised hidden state; in training it has the gradient of
// that ready when give() returns, and has added the projection's own.
class LossDownstream final : public Downstream {
 public:
  LossDownstream(models::Head& head, Gradients& gradients, const BatchSource& source)
      : head_(head), gradients_(gradients), source_(source) {}

  void give(const Phase& phase, MicroBatch micro_batch, Flow flow) override;
  at::Tensor take_gradient(const Phase& phase, MicroBatch micro_batch) override;
  StepReport collect(const Phase& phase) override;
  void announce(const StepVerdict&) override {}

 private:
  // What was counted goes where a new pass begins, or another one is asked for than was reported.
  void begin_another(const std::optional<Phase>& asked);

  models::Head& head_;
  Gradients& gradients_;
  const BatchSource& source_;
  double loss_sum_ = 0;
  std::int64_t tokens_ = 0;        // of the rows seen in this pass
  std::optional<Phase> reported_;  // the pass is over; it may be asked for again
  store::Step counted_step_{};
  std::int64_t target_tokens_ = 0;  // of counted_step_, over all micro-batches and replicas
  std::map<MicroBatch, at::Tensor> ready_;
};

}  // namespace strait::stages

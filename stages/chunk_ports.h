#pragma once

#include "models/model.h"
#include "stages/batch_source.h"
#include "stages/boundary_end.h"
#include "stages/gradients.h"
#include "stages/link_tie.h"
#include "stages/ports.h"
#include "stages/preference.h"
#include "stages/reference_values.h"

namespace strait::stages {

// Ports between two chunks on different stages, over a boundary. Without `gradients` none cross it,
// because no layer above is trained.

class LinkUpstream final : public Upstream {
 public:
  explicit LinkUpstream(BoundaryEnd& end, bool gradients = true)
      : end_(end), gradients_(gradients) {}

  Flow take(const Phase& phase, MicroBatch micro_batch) override;
  void give_gradient(const Phase& phase, MicroBatch micro_batch, at::Tensor gradient) override;
  StepDecision decide(const StepReport& report) override;

 private:
  BoundaryEnd& end_;
  const bool gradients_;
  std::map<MicroBatch, codec::Rows> rows_;  // of inputs whose gradient has not been given yet
};

class LinkDownstream final : public Downstream {
 public:
  explicit LinkDownstream(BoundaryEnd& end, bool gradients = true)
      : end_(end), gradients_(gradients) {}

  void give(const Phase& phase, MicroBatch micro_batch, Flow flow) override;
  at::Tensor take_gradient(const Phase& phase, MicroBatch micro_batch) override;
  at::Tensor loss_sums(const Phase&) override { return {}; }
  StepReport collect(const Phase& phase, std::span<const double> loss_sums) override;
  void announce(const StepDecision& decision) override;

 private:
  BoundaryEnd& end_;
  const bool gradients_;
};

// Ports between two consecutive chunks on the same stage. Nothing is encoded, sent or waited for:
// in the action list every tensor is given before it is taken. They connect to no other process, so
// they have no reports and decisions.

struct LocalQueues {
  std::map<MicroBatch, Flow> activations;
  std::map<MicroBatch, at::Tensor> gradients;
};

class LocalUpstream final : public Upstream {
 public:
  explicit LocalUpstream(std::shared_ptr<LocalQueues> queues) : queues_(std::move(queues)) {}

  Flow take(const Phase& phase, MicroBatch micro_batch) override;
  void give_gradient(const Phase& phase, MicroBatch micro_batch, at::Tensor gradient) override;
  StepDecision decide(const StepReport& report) override;

 private:
  std::shared_ptr<LocalQueues> queues_;
};

class LocalDownstream final : public Downstream {
 public:
  explicit LocalDownstream(std::shared_ptr<LocalQueues> queues) : queues_(std::move(queues)) {}

  void give(const Phase& phase, MicroBatch micro_batch, Flow flow) override;
  at::Tensor take_gradient(const Phase& phase, MicroBatch micro_batch) override;
  at::Tensor loss_sums(const Phase&) override { return {}; }
  StepReport collect(const Phase& phase, std::span<const double> loss_sums) override;
  void announce(const StepDecision& decision) override;

 private:
  std::shared_ptr<LocalQueues> queues_;
};

// The upper end of a pipeline: makes token tensors of the batch, drops gradients, and decides on a
// step when all reports are in. With a tie, whose embedding holds only the rows of a phase, tokens
// are replaced by their row numbers.
class BatchUpstream final : public Upstream {
 public:
  using Decide = std::function<StepDecision(const StepReport&)>;

  BatchUpstream(const BatchSource& source, Decide decide, ReaderTie* tie = nullptr)
      : source_(source), decide_(std::move(decide)), tie_(tie) {}

  Flow take(const Phase& phase, MicroBatch micro_batch) override;
  void give_gradient(const Phase& phase, MicroBatch micro_batch, at::Tensor gradient) override;
  StepDecision decide(const StepReport& report) override { return decide_(report); }

 private:
  const BatchSource& source_;
  Decide decide_;
  ReaderTie* tie_;
};

// The lower end of a pipeline: the LM head's projection and the loss, in one fused pass that never
// holds all logits. Its input is the normalised hidden state. In training, give() computes the
// gradient of the input and adds that of the projection. Preferences take a second product, because
// the weight of a token depends on the whole of both answers; a reference phase gives its values to
// `references`, which is null for losses without a reference.
class LossDownstream final : public Downstream {
 public:
  LossDownstream(models::Head& head, Gradients& gradients, const BatchSource& source,
                 const PreferenceOptions& preference, ReferenceValues* references = nullptr);

  void give(const Phase& phase, MicroBatch micro_batch, Flow flow) override;
  at::Tensor take_gradient(const Phase& phase, MicroBatch micro_batch) override;
  at::Tensor loss_sums(const Phase& phase) override;
  StepReport collect(const Phase& phase, std::span<const double> loss_sums) override;
  void announce(const StepDecision&) override {}

 private:
  // Resets the sums when a new pass begins, or when the report of another pass is collected.
  void reset_if_reported(const std::optional<Phase>& collected);

  struct Targets;

  Targets targets_of(const Phase& phase, const codec::Rows& rows) const;
  void add_loss(const at::Tensor& sums);
  void keep_reference(const Phase& phase, const codec::Rows& rows, const at::Tensor& sums);
  // Adds the losses of a micro-batch of preferences, and returns the weight of each target.
  at::Tensor prefer(const Phase& phase, const codec::Rows& rows, const Targets& targets,
                    const at::Tensor& sums);

  models::Head& head_;
  Gradients& gradients_;
  const BatchSource& source_;
  PreferenceOptions preference_;
  ReferenceValues* references_;
  at::Tensor loss_sums_;            // float64, on the device; undefined: zero
  std::int64_t tokens_ = 0;         // of the rows in this pass
  std::optional<Phase> reported_;   // this pass is finished; its report may be collected again
  store::Step counted_step_{};      // the step of target_tokens_
  std::int64_t target_tokens_ = 0;  // over all micro-batches and replicas
  std::map<MicroBatch, at::Tensor> gradients_ready_;
};

}  // namespace strait::stages

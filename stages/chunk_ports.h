#pragma once

#include <map>
#include <memory>
#include <utility>

#include "stages/boundary_end.h"
#include "stages/ports.h"

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

}  // namespace strait::stages

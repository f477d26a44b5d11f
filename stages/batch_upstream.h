#pragma once

#include <functional>

#include "stages/batch_source.h"
#include "stages/ports.h"

namespace strait::stages {

// The head of a pipeline: makes token tensors of the batch, swallows gradients, and decides on a
// step when all reports are in.
class BatchUpstream final : public Upstream {
 public:
  using Decide = std::function<StepVerdict(const StepReport&)>;

  BatchUpstream(const BatchSource& source, Decide decide)
      : source_(source), decide_(std::move(decide)) {}

  Flow take(const Phase& phase, MicroBatch micro_batch) override;
  void give_gradient(const Phase& phase, MicroBatch micro_batch, at::Tensor gradient) override;
  StepVerdict settle(const StepReport& report) override { return decide_(report); }

 private:
  const BatchSource& source_;
  Decide decide_;
};

}  // namespace strait::stages

#pragma once

#include "stages/boundary_end.h"
#include "stages/ports.h"

namespace strait::stages {

// The lower end of a chunk whose output goes to another process.
class LinkDownstream final : public Downstream {
 public:
  explicit LinkDownstream(BoundaryEnd& end) : end_(end) {}

  void give(const Phase& phase, MicroBatch micro_batch, Flow flow) override;
  at::Tensor take_gradient(const Phase& phase, MicroBatch micro_batch) override;
  StepReport collect(const Phase& phase) override;
  void announce(const StepVerdict& verdict) override;

 private:
  BoundaryEnd& end_;
};

}  // namespace strait::stages

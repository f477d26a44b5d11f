#pragma once

#include <map>

#include "stages/boundary_end.h"
#include "stages/ports.h"

namespace strait::stages {

// The upper end of a chunk whose input comes from another process.
class LinkUpstream final : public Upstream {
 public:
  explicit LinkUpstream(BoundaryEnd& end) : end_(end) {}

  Flow take(const Phase& phase, MicroBatch micro_batch) override;
  void give_gradient(const Phase& phase, MicroBatch micro_batch, at::Tensor gradient) override;
  StepVerdict settle(const StepReport& report) override;

 private:
  BoundaryEnd& end_;
  std::map<MicroBatch, codec::Rows> rows_;  // of what was taken and has no gradient yet
};

}  // namespace strait::stages

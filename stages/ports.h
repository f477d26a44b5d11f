#pragma once

#include <ATen/core/Tensor.h>

#include "framework/codec/rows.h"
#include "schedules/index.h"
#include "stages/agreement.h"
#include "stages/phase.h"

namespace strait::stages {

// A tensor and the rows it holds: tokens [rows, length] at the head of the pipeline, activations
// [rows, length, width] behind it.
struct Flow {
  at::Tensor values;
  codec::Rows rows;
};

// Where a chunk's input comes from. The end of a pipeline is an object of this kind, not a branch.
// Called by the compute thread alone; take() is the place where it may wait. An error of the world
// behind the port (a lost link, a poisoned queue) is thrown by the next call.
class Upstream {
 public:
  Upstream() = default;
  Upstream(const Upstream&) = delete;
  Upstream& operator=(const Upstream&) = delete;
  virtual ~Upstream() = default;

  virtual Flow take(const Phase& phase, MicroBatch micro_batch) = 0;
  // The gradient of what take() gave; undefined where that has none (tokens).
  virtual void give_gradient(const Phase& phase, MicroBatch micro_batch, at::Tensor gradient) = 0;
  // Hands the report of this stage and all behind it upwards, and brings back what was decided.
  virtual StepVerdict settle(const StepReport& report) = 0;
};

// Where a chunk's output goes. Called by the compute thread alone.
class Downstream {
 public:
  Downstream() = default;
  Downstream(const Downstream&) = delete;
  Downstream& operator=(const Downstream&) = delete;
  virtual ~Downstream() = default;

  virtual void give(const Phase& phase, MicroBatch micro_batch, Flow flow) = 0;
  virtual at::Tensor take_gradient(const Phase& phase, MicroBatch micro_batch) = 0;
  // The report of all that lies behind this port, once its backwards are done; once more for every
  // time that the verdict was "again".
  virtual StepReport collect(const Phase& phase) = 0;
  virtual void announce(const StepVerdict& verdict) = 0;
};

}  // namespace strait::stages

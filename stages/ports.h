#pragma once

#include <ATen/core/Tensor.h>

#include "framework/codec/rows.h"
#include "schedules/index.h"
#include "stages/step_messages.h"

namespace strait::stages {

// A tensor and its rows: tokens [rows, length] before the first layer, activations
// [rows, length, width] after it.
struct Flow {
  at::Tensor values;
  codec::Rows rows;
};

// The source of a chunk's input. Both ends of a pipeline are ports too, so that the loop needs no
// branch for them. Called only by the compute thread; take() may wait. After an error of the port
// (a lost link, a poisoned queue) the next call throws it.
class Upstream {
 public:
  Upstream() = default;
  Upstream(const Upstream&) = delete;
  Upstream& operator=(const Upstream&) = delete;
  virtual ~Upstream() = default;

  virtual Flow take(const Phase& phase, MicroBatch micro_batch) = 0;
  // The gradient of what take() returned; undefined for tokens, and if no layer above is trained.
  virtual void give_gradient(const Phase& phase, MicroBatch micro_batch, at::Tensor gradient) = 0;
  // Sends the report of this stage and all stages below it up, and returns the decision.
  virtual StepDecision decide(const StepReport& report) = 0;
};

// The destination of a chunk's output. Called only by the compute thread.
class Downstream {
 public:
  Downstream() = default;
  Downstream(const Downstream&) = delete;
  Downstream& operator=(const Downstream&) = delete;
  virtual ~Downstream() = default;

  virtual void give(const Phase& phase, MicroBatch micro_batch, Flow flow) = 0;
  // Undefined if no layer up to here is trained.
  virtual at::Tensor take_gradient(const Phase& phase, MicroBatch micro_batch) = 0;
  // The loss of this pass so far, a float64 scalar on the stage's device, which the stage reads
  // together with its own values; of preferences PreferenceResult::sums. Undefined: none here.
  virtual at::Tensor loss_sums(const Phase& phase) = 0;
  // The report of all stages below this port, after their backwards, with the values of
  // loss_sums(). Called again after every decision with `retry`.
  virtual StepReport collect(const Phase& phase, std::span<const double> loss_sums) = 0;
  // Sends a decision to them.
  virtual void announce(const StepDecision& decision) = 0;
};

}  // namespace strait::stages

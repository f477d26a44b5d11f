#pragma once

#include "stages/gradients.h"
#include "stages/step_messages.h"

namespace strait::stages {

// The token table that embedding and LM head share. Each layer's gradient is summed over the step
// by itself, and both sums are added once. So one process and two give the same bits.
//
// If the two layers are on different stages, see link_tie.h.
class WeightTie {
 public:
  WeightTie() = default;
  WeightTie(const WeightTie&) = delete;
  WeightTie& operator=(const WeightTie&) = delete;
  virtual ~WeightTie() = default;

  // Called before the first action of a phase with this many micro-batches.
  virtual void begin(const Phase&, int /*micro_batches*/) {}
  // Called after the last backward of a step, before its norms are computed.
  virtual void combine(Gradients& gradients) = 0;
  virtual double waited_seconds() const { return 0; }  // waits for values, so far
};

// Both layers are in this process and share one storage; the sum is in the embedding's gradient.
class LocalTie final : public WeightTie {
 public:
  LocalTie(at::Tensor embedding, at::Tensor head)
      : embedding_(std::move(embedding)), head_(std::move(head)) {}
  void combine(Gradients& gradients) override {
    gradients.of(embedding_).add_(gradients.of(head_));
  }

 private:
  at::Tensor embedding_;
  at::Tensor head_;
};

}  // namespace strait::stages

#pragma once

#include <memory>

#include "framework/net/link.h"
#include "stages/gradients.h"
#include "stages/wait_clock.h"

namespace strait::stages {

// A weight that two layers share. Each layer's gradient is summed over the step on its own; both
// sums are added once, here, so that one process and two give the same bits.
class WeightTie {
 public:
  WeightTie() = default;
  WeightTie(const WeightTie&) = delete;
  WeightTie& operator=(const WeightTie&) = delete;
  virtual ~WeightTie() = default;

  // Called after the last backward of a step, before its norms are computed.
  virtual void combine(Gradients& gradients) = 0;
  // Null if both layers are in this process.
  virtual net::Link* link() { return nullptr; }
};

// Both layers are in this process and share one storage; the sum is in the embedding's gradient.
class LocalTie final : public WeightTie {
 public:
  LocalTie(at::Tensor embedding, at::Tensor head)
      : embedding_(std::move(embedding)), head_(std::move(head)) {}
  void combine(Gradients& gradients) override;

 private:
  at::Tensor embedding_;
  at::Tensor head_;
};

// The other layer is in another process. Both send their gradient and add the other one. A sum of
// two numbers does not depend on their order, so both get the same bits.
class LinkTie final : public WeightTie {
 public:
  LinkTie(at::Tensor own, std::unique_ptr<net::Link> link, WaitClock& waits)
      : own_(std::move(own)), link_(std::move(link)), waits_(waits) {}
  void combine(Gradients& gradients) override;

  net::Link* link() override { return link_.get(); }

 private:
  at::Tensor own_;
  std::unique_ptr<net::Link> link_;
  WaitClock& waits_;
};

}  // namespace strait::stages

#pragma once

#include <memory>

#include "framework/net/link.h"
#include "stages/gradients.h"
#include "stages/wait_clock.h"

namespace strait::stages {

// A weight that two layers share. Its two gradients are summed apart over a step and added once,
// here, so that one process and two give the same bits.
class WeightTie {
 public:
  WeightTie() = default;
  WeightTie(const WeightTie&) = delete;
  WeightTie& operator=(const WeightTie&) = delete;
  virtual ~WeightTie() = default;

  // Between the last backward of a step and its norms.
  virtual void combine(Gradients& gradients) = 0;
  // Null where nothing is sent.
  virtual net::Link* link() { return nullptr; }
};

// Both layers live here and share one storage; the sum lands in the embedding's gradient.
class LocalTie final : public WeightTie {
 public:
  LocalTie(at::Tensor embedding, at::Tensor head)
      : embedding_(std::move(embedding)), head_(std::move(head)) {}
  void combine(Gradients& gradients) override;

 private:
  at::Tensor embedding_;
  at::Tensor head_;
};

// The other layer lives in another process: both send their gradient, both add. A sum of two
// numbers does not depend on their order, so both ends get the same bits and stay equal.
class LinkTie final : public WeightTie {
 public:
  LinkTie(at::Tensor mine, std::unique_ptr<net::Link> link, WaitClock& waits)
      : mine_(std::move(mine)), link_(std::move(link)), waits_(waits) {}
  void combine(Gradients& gradients) override;

  net::Link* link() override { return link_.get(); }

 private:
  at::Tensor mine_;
  std::unique_ptr<net::Link> link_;
  WaitClock& waits_;
};

}  // namespace strait::stages

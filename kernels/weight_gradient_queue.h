#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <functional>
#include <utility>
#include <vector>

namespace strait::kernels {

// Adds to the gradients of leaves.
struct GradientAddition {
  std::vector<at::Tensor> leaves;
  std::function<void()> add;  // captures detached tensors only, or it would keep the whole graph
};

// Weight gradients that a backward leaves for later, so that the gradient of its input is ready
// sooner (zero-bubble schedules). Each holds the input and the output's gradient of a product.
class WeightGradientQueue {
 public:
  void push(GradientAddition addition) { queued_.push_back(std::move(addition)); }
  std::size_t size() const { return queued_.size(); }
  bool contains(const at::Tensor& leaf) const;

  // Adds and announces (leaf_gradient.h) all of them, in the order in which they were queued, and
  // frees what they hold one by one.
  void play();

 private:
  std::vector<GradientAddition> queued_;
};

// While one lives, backwards that this thread runs queue the weight gradients of linear.h instead
// of adding them. Autograd runs the backward of CPU tensors on the thread that asks for it, those
// of other devices only without its own threads (c10::AutogradState); one that runs on a thread of
// autograd adds its gradients at once. Do not nest.
class QueueWeightGradients {
 public:
  explicit QueueWeightGradients(WeightGradientQueue& queue);
  QueueWeightGradients(const QueueWeightGradients&) = delete;
  QueueWeightGradients& operator=(const QueueWeightGradients&) = delete;
  ~QueueWeightGradients();
};

// For backward functions: adds and announces, now or when the queue of this thread is played.
void add_now_or_later(GradientAddition addition);

// Whether the backward that this thread runs has queued a gradient of this leaf. Autograd runs a
// leaf's hook then, too: it does so behind every backward function that could have a gradient.
bool is_left_for_later(const at::Tensor& leaf);

}  // namespace strait::kernels

#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <functional>
#include <utility>
#include <vector>

namespace strait::kernels {

// For backward functions that add a parameter's gradient in place instead of returning it, so that
// no temporary of a large parameter's size exists for every micro-batch.

// The parameter itself. A leaf that autograd saved while hooks were set for saved tensors comes
// back as another variable, which knows the parameter as long as its graph lives.
at::Tensor parameter_of(const at::Tensor& leaf);

// The gradient of `leaf`, made of zeros if there is none. It may be wider than the leaf: float32
// for a bfloat16 parameter.
at::Tensor& leaf_gradient(const at::Tensor& leaf);

// Runs the hook that autograd runs after its own accumulation. Call once per backward function,
// after the addition.
void announce_leaf_gradient(const at::Tensor& leaf);

// sum += scale · left · right, in the type of `sum`. Products of a narrower type are added in
// pieces.
void add_product(const at::Tensor& sum, const at::Tensor& left, const at::Tensor& right,
                 double scale = 1);

// An addition to the gradient of a leaf.
struct GradientAddition {
  std::vector<at::Tensor> leaves;
  // captures only detached tensors; others would keep the whole graph alive
  std::function<void()> add;
};

// Weight gradients that a backward postpones, so that the gradient of its input is ready earlier
// (zero-bubble schedules). Each holds the input and the output's gradient of a product.
class WeightGradientQueue {
 public:
  void push(GradientAddition addition) { queued_.push_back(std::move(addition)); }
  std::size_t size() const { return queued_.size(); }
  bool contains(const at::Tensor& leaf) const;

  // Adds and announces all of them in the order in which they were queued, and frees what they hold
  // one by one.
  void play();

 private:
  std::vector<GradientAddition> queued_;
};

// While an object lives, backwards on this thread queue the weight gradients of linear.h instead of
// adding them. Autograd runs the backward of CPU tensors on the calling thread. For other devices
// it does so only without its own threads (c10::AutogradState); a backward on an autograd thread
// adds its gradients at once. Do not nest.
class QueueWeightGradients {
 public:
  explicit QueueWeightGradients(WeightGradientQueue& queue);
  QueueWeightGradients(const QueueWeightGradients&) = delete;
  QueueWeightGradients& operator=(const QueueWeightGradients&) = delete;
  ~QueueWeightGradients();
};

// For backward functions: adds and announces now, or when the queue of this thread is played.
void add_now_or_later(GradientAddition addition);

// Whether the backward on this thread has queued a gradient of this leaf. Autograd runs the leaf's
// hook in this case too: after every backward function that could have a gradient.
bool is_left_for_later(const at::Tensor& leaf);

}  // namespace strait::kernels

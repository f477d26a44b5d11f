#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <vector>

#include "models/layer.h"

namespace strait::stages {

// The gradients of a stage's parameters, summed over the micro-batches of a step in float32, in
// buffers that live as long as the stage. For float32 parameters autograd adds into these buffers
// itself; gradients of narrower parameters are folded in after every backward.
class Gradients {
 public:
  explicit Gradients(const std::vector<models::Parameter>& parameters);

  // Adds what the last backward left in narrower .grad tensors. Call once after each.
  void fold();
  void clear();
  void scale(double factor);

  // In the order of the parameters given.
  at::Tensor& operator[](std::size_t index) { return sums_[index]; }
  // The buffer of this very leaf; it must be one of the parameters.
  at::Tensor& of(const at::Tensor& leaf);

 private:
  std::vector<at::Tensor> leaves_;
  std::vector<at::Tensor> sums_;
};

}  // namespace strait::stages

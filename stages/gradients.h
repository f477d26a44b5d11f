#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "models/layer.h"
#include "stages/stage_layout.h"

namespace strait::stages {

// The gradients of a stage's parameters, summed over the micro-batches of a step in float32, in
// buffers that live as long as the stage. For float32 parameters autograd adds into these buffers
// itself; gradients of narrower parameters are folded in after every backward.
class Gradients {
 public:
  // Flat, over the layout; a tied head that shares the embedding's memory has a buffer apart.
  Gradients(const std::vector<models::Parameter>& parameters, const sync::Layout& layout);

  // From now on calls this with every part of values() that the backward pass under way is the last
  // to add to, as soon as it has; for parameters that autograd adds to itself. While announce() is
  // off, nothing is called.
  void on_ready(const sync::Layout& layout, const std::function<void(sync::Range)>& ready);
  void announce(bool on) { *announces_ = on; }

  // Adds what the last backward left in narrower .grad tensors. Call once after each.
  void fold();
  void clear();
  void scale(double factor);

  std::span<float> values() const { return whole_.values(); }
  // In the order of the parameters given.
  at::Tensor& operator[](std::size_t index) { return sums_[index]; }
  // The buffer of this very leaf; it must be one of the parameters.
  at::Tensor& of(const at::Tensor& leaf);

 private:
  FlatTensor whole_;
  std::shared_ptr<bool> announces_ = std::make_shared<bool>(false);
  std::vector<std::string> names_;
  std::vector<at::Tensor> leaves_;
  std::vector<at::Tensor> sums_;
};

}  // namespace strait::stages

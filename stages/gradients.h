#pragma once

#include <functional>

#include "models/layer.h"
#include "stages/stage_layout.h"

namespace strait::stages {

// The device of the layers with these trained parameters; the CPU if there are none.
at::Device device_of(const std::vector<models::Parameter>& trained);

// The gradients of a stage's parameters, summed over the micro-batches of a step in float32, in
// buffers that live as long as the stage. They are the .grad of all parameters, even narrow ones.
// So every backward adds to them, and sums in a narrow type never lose bits.
class Gradients {
 public:
  // Contiguous, over the layout. A tied LM head that shares the embedding's memory has a separate
  // buffer outside the layout.
  Gradients(const std::vector<models::Parameter>& parameters, const sync::Layout& layout);

  // `ready` is called during a backward with the range of a parameter in values(), as soon as
  // autograd has added its gradient. Only while announce() is on, which is in the last backward of
  // a step. Not called for tied weights, to which another sum is added.
  void on_ready(const sync::Layout& layout, const std::function<void(sync::Range)>& ready);
  void announce(bool on);
  // This leaf's gradient is added without autograd, and is complete when the last backward begins.
  // Ignores a leaf that is not trained.
  void added_before_backward(const at::Tensor& leaf);

  void clear();
  void scale(double factor);

  // Contiguous, over the layout.
  const at::Tensor& values() const { return whole_.whole(); }
  // By index in the constructor's parameters.
  at::Tensor& operator[](std::size_t index) { return sums_[index]; }
  // The buffer of this leaf, which must be one of the parameters.
  at::Tensor& of(const at::Tensor& leaf);

 private:
  // Calls `change` for all memory of sums.
  template <class Change>
  void change_all(Change change);

  FlatTensor whole_;
  std::vector<at::Tensor> apart_;  // sums outside the layout
  std::shared_ptr<bool> announces_ = std::make_shared<bool>(false);
  std::vector<std::string> names_;
  std::vector<at::Tensor> leaves_;
  std::vector<at::Tensor> sums_;
  std::vector<std::size_t> early_;  // see added_before_backward()
  std::function<void(std::size_t index)> ready_;
};

}  // namespace strait::stages

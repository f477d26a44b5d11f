#pragma once

#include <ATen/core/Tensor.h>

#include "kernels/cross_entropy.h"
#include "models/parameter.h"
#include "models/pass.h"

namespace strait::models {

// One layer of a model. Except for the cache of a generation it is a pure function of its input,
// its parameters and the pass, so that running it again gives the same bits. Indices are global: 0
// is the embedding, then the blocks, then the head. Used by the compute thread only.
class Layer {
 public:
  explicit Layer(int index) : index_(index) {}
  Layer(const Layer&) = delete;
  Layer& operator=(const Layer&) = delete;
  virtual ~Layer() = default;

  // The embedding takes int64 tokens [rows, length]. The input of all other layers, and every
  // result, is [rows, length, hidden]. Builds an autograd graph if gradients are enabled.
  virtual at::Tensor forward(const at::Tensor& input, const Pass& pass) = 0;

  int index() const { return index_; }
  const std::vector<Parameter>& parameters() const { return parameters_; }

 protected:
  void adopt(const ParameterMaker& maker) { parameters_ = maker.made(); }

 private:
  int index_;
  std::vector<Parameter> parameters_;
};

// The last layer. Its forward is the final norm only. The caller multiplies by the projection,
// because it fuses the product with the loss, or needs only one row of it.
class Head : public Layer {
 public:
  using Layer::Layer;

  const kernels::Projection& projection() const { return projection_; }  // of leaves

 protected:
  void set_projection(kernels::Projection projection) { projection_ = std::move(projection); }

 private:
  kernels::Projection projection_;
};

}  // namespace strait::models

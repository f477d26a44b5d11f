#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

namespace strait::models {

// A weight as training sees it: an autograd leaf under its name on the Hugging Face hub.
struct Parameter {
  std::string name;
  at::Tensor value;   // a leaf; in-place changes are seen by the layer that computes with it
  bool owned = true;  // false: the head's side of a tied weight; not counted in norms, not saved
};

// Makes the leaves of one layer and remembers them in order. Values are whatever the memory holds
// until they are loaded or initialised.
class ParameterMaker {
 public:
  ParameterMaker(at::ScalarType type, at::Device device) : type_(type), device_(device) {}

  at::Tensor make(const std::string& name, at::IntArrayRef shape);
  // The head's side of a tied weight: a leaf (and a gradient) of its own. Shares the memory of
  // `embedding` if that is defined, has its own if the embedding is on another stage.
  at::Tensor make_tied(const std::string& name, at::IntArrayRef shape, const at::Tensor& embedding);

  const std::vector<Parameter>& made() const { return made_; }

 private:
  at::ScalarType type_;
  at::Device device_;
  std::vector<Parameter> made_;
};

}  // namespace strait::models

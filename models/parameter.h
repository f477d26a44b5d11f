#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>
#include <vector>

#include "kernels/linear.h"
#include "models/lora.h"

namespace strait::models {

// A weight as training sees it: an autograd leaf under its name on the Hugging Face hub.
struct Parameter {
  std::string name;
  at::Tensor value;      // a leaf; in-place changes are seen by the layer that computes with it
  bool owned = true;     // false: the head's side of a tied weight; not counted in norms, not saved
  bool trained = true;   // false: frozen, without gradient, master, moments or checkpoint
  bool adapter = false;  // not in the files of the model itself
  // A frozen matrix of few bits. Then `value` has its shape and type, and no memory.
  std::optional<kernels::QuantizedMatrix> quantized = std::nullopt;
};

// Copies values of this shape into a parameter, rounded to its type or quantised. InputError with
// the parameter's name: there are values that cannot be quantised.
void assign(const Parameter& parameter, const at::Tensor& values);

// A trained product of two small matrices that is added to a frozen matrix.
struct Adapter {
  at::Tensor down;  // [rank, in]
  at::Tensor up;    // [out, rank]
  AdapterShape shape;
};

// Makes the leaves of one layer and remembers them in order. Values are whatever the memory holds
// until they are loaded or initialised.
class ParameterMaker {
 public:
  // With `lora`, which is borrowed, all but its adapters and saved modules is frozen.
  ParameterMaker(const Lora* lora, at::ScalarType type, at::Device device)
      : lora_(lora), type_(type), device_(device) {}

  at::Tensor make(const std::string& name, at::IntArrayRef shape);
  // Of a product: of few bits where it is frozen and LoRA says so.
  kernels::Weight make_matrix(const std::string& name, at::IntArrayRef shape);
  // The head's side of a tied weight: a leaf (and a gradient) of its own. Shares the memory of
  // `embedding` if that is defined, has its own if the embedding is on another stage.
  at::Tensor make_tied(const std::string& name, at::IntArrayRef shape, const at::Tensor& embedding);
  // The adapter of the matrix `name`, [out, in]; nullopt: it has none.
  std::optional<Adapter> make_adapter(const std::string& name, std::int64_t input,
                                      std::int64_t output);

  const std::vector<Parameter>& made() const { return made_; }

 private:
  bool is_trained(const std::string& tensor) const;
  at::Tensor leaf(at::IntArrayRef shape, bool trained) const;

  const Lora* lora_;
  at::ScalarType type_;
  at::Device device_;
  std::vector<Parameter> made_;
};

}  // namespace strait::models

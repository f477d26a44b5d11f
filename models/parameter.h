#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>
#include <vector>

#include "kernels/linear.h"
#include "models/lora.h"

namespace strait::models {

// The weight of a product, as kernels::linear() takes it.
struct Matrix {
  kernels::Weight weight;
  bool input_first = false;
};

// A weight as training uses it: an autograd leaf with its name on the Hugging Face hub.
struct Parameter {
  std::string name;
  at::Tensor value;  // a leaf; its layer sees changes in place
  // false: the head's side of a tied weight, which is not in norms or checkpoints
  bool owned = true;
  bool trained = true;   // false: frozen, without gradient, master, moments or checkpoint
  bool adapter = false;  // not part of the model's own files
  // A frozen matrix in a quantised format. `value` then has its shape and type, but no memory.
  std::optional<kernels::QuantizedMatrix> quantized = std::nullopt;
  double token_share = 1;  // of the tokens that it is used for, on average; below 1 in experts
  // Of DoRA: the matrix whose norms of outputs are its first values.
  std::optional<Matrix> norms_of = std::nullopt;
};

// Copies values of this shape into a parameter, rounded to its type or quantised. InputError with
// the parameter's name: values cannot be quantised.
void assign(const Parameter& parameter, const at::Tensor& values);

// A trained product of two small matrices that is added to a frozen matrix.
struct Adapter {
  at::Tensor down;  // [rank, in]
  at::Tensor up;    // [out, rank]
  AdapterShape shape;
  at::Tensor norms =
      {};  // [out], of the outputs of the sum (DoRA); undefined: they are as they are
};

// Makes the leaves of one layer and lists them in order. Values are undefined until they are loaded
// or initialised.
class ParameterMaker {
 public:
  // With `lora`, which is borrowed, everything except its adapters and saved modules is frozen.
  ParameterMaker(const Lora* lora, at::ScalarType type, at::Device device)
      : lora_(lora), type_(type), device_(device) {}

  at::Tensor make(const std::string& name, at::IntArrayRef shape);
  // In float32, whatever the type of the others.
  at::Tensor make_wide(const std::string& name, at::IntArrayRef shape);
  // A matrix of a product; quantised if it is frozen and LoRA asks for it.
  kernels::Weight make_matrix(const std::string& name, at::IntArrayRef shape);
  // The head's side of a tied weight: a separate leaf with its own gradient. Shares the memory of
  // `embedding` if that is defined; else the embedding is on another stage.
  at::Tensor make_tied(const std::string& name, at::IntArrayRef shape, const at::Tensor& embedding);
  // The adapter of the matrix `name`, which has been made. Nullopt: it has none.
  std::optional<Adapter> make_adapter(const std::string& name, const Matrix& matrix,
                                      std::int64_t input, std::int64_t output);

  // Of the parameters that are made from now on.
  void set_token_share(double share) { token_share_ = share; }
  // They are parts of tensors of all experts, and so among Lora::parameters if they have adapters.
  void set_joined(bool joined) { joined_ = joined; }

  const std::vector<Parameter>& made() const { return made_; }

 private:
  bool is_trained(const std::string& tensor) const;
  at::Tensor leaf(at::IntArrayRef shape, bool trained) const;
  void add(Parameter parameter);

  const Lora* lora_;
  at::ScalarType type_;
  at::Device device_;
  double token_share_ = 1;
  bool joined_ = false;
  std::vector<Parameter> made_;
};

}  // namespace strait::models

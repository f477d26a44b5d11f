#pragma once

#include <ATen/core/Tensor.h>

#include <span>
#include <vector>

namespace strait::codec {

// Tensors that are reused once no other reference to them exists, so that a steady state allocates
// nothing. Only one thread calls take(); any thread may drop a tensor.
class TensorPool {
 public:
  explicit TensorPool(at::ScalarType type) : type_(type) {}

  // The contents are uninitialised. The pool holds as many tensors as were ever in use at once.
  at::Tensor take(std::span<const std::int64_t> shape);

 private:
  at::ScalarType type_;
  std::vector<at::Tensor> tensors_;
};

}  // namespace strait::codec

#pragma once

#include <ATen/core/Tensor.h>

#include <span>
#include <vector>

namespace strait::codec {

// Tensors that are handed out again once nobody else holds them, so that a steady state allocates
// nothing. One thread takes; the others just drop what they were given.
class TensorPool {
 public:
  explicit TensorPool(at::ScalarType type) : type_(type) {}

  // Contents are whatever was there. Memory is that of the most tensors ever in use at once.
  at::Tensor take(std::span<const std::int64_t> shape);

 private:
  at::ScalarType type_;
  std::vector<at::Tensor> tensors_;
};

}  // namespace strait::codec

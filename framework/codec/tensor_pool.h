#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

namespace strait::codec {

// Tensors that are reused when no other reference to them exists, so that a steady state does not
// allocate. Only one thread calls take(); any thread may drop a tensor.
class TensorPool {
 public:
  // `pinned`: memory that a device can copy during its compute.
  explicit TensorPool(at::ScalarType type, bool pinned = false) : type_(type), pinned_(pinned) {}

  // The contents are uninitialised. The pool grows to the largest number of tensors in use at once.
  at::Tensor take(std::span<const std::int64_t> shape);

 private:
  at::Tensor make(at::IntArrayRef sizes) const;

  at::ScalarType type_;
  bool pinned_;
  std::vector<at::Tensor> tensors_;
};

}  // namespace strait::codec

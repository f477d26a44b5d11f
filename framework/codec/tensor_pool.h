#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

namespace strait::codec {

// Tensors that are reused once no other reference to them exists, so that a steady state allocates
// nothing. Only one thread calls take(); any thread may drop a tensor.
class TensorPool {
 public:
  // `pinned`: in memory that a device can copy from and to beside its compute.
  explicit TensorPool(at::ScalarType type, bool pinned = false) : type_(type), pinned_(pinned) {}

  // The contents are uninitialised. The pool holds as many tensors as were ever in use at once.
  at::Tensor take(std::span<const std::int64_t> shape);

 private:
  at::Tensor make(at::IntArrayRef sizes) const;

  at::ScalarType type_;
  bool pinned_;
  std::vector<at::Tensor> tensors_;
};

}  // namespace strait::codec

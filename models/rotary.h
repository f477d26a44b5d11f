#pragma once

#include <ATen/core/Tensor.h>

#include <utility>
#include <vector>

#include "kernels/rotate_heads.h"

namespace strait::models {

// The angles of a rotary position embedding: position times frequency.
struct Rotary {
  std::vector<float> frequencies;  // one for each rotated pair of a head's values
  double scale = 1;                // of cosine and sine: what yarn stretches scores by
  kernels::RotaryPairs pairs = kernels::RotaryPairs::halves;
};

// Cosines and sines of one pass's positions, made when a layer first asks for them and shared by
// all layers. Used by the compute thread alone.
class RotaryTables {
 public:
  struct Table {
    at::Tensor cosine;  // [rows, length, pairs]
    at::Tensor sine;
  };
  // Made in float32, then of the layers' type and device. `rotary` must outlive the pass: it is
  // recognised by its address.
  const Table& of(const Rotary& rotary, const at::Tensor& positions,
                  const at::TensorOptions& layers);

 private:
  std::vector<std::pair<const Rotary*, Table>> tables_;
};

}  // namespace strait::models

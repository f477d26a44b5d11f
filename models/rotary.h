#pragma once

#include <ATen/core/Tensor.h>

#include <utility>
#include <vector>

#include "kernels/rotate_heads.h"

namespace strait::models {

// The angles of a rotary position embedding: position times frequency.
struct Rotary {
  std::vector<float> frequencies;  // one per rotated pair of a head's values
  double scale = 1;                // of cosine and sine; yarn scales scores by it
  kernels::RotaryPairs pairs = kernels::RotaryPairs::halves;
};

// Cosines and sines of one pass's positions. Made when a layer first needs them and shared by all
// layers. Used by the compute thread only.
class RotaryTables {
 public:
  struct Table {
    at::Tensor cosine;  // [rows, length, pairs]
    at::Tensor sine;
  };
  // Computed in float32, then converted to the type and device of the layers. `rotary` is
  // identified by its address, so it must outlive the pass.
  const Table& of(const Rotary& rotary, const at::Tensor& positions,
                  const at::TensorOptions& layers);

 private:
  std::vector<std::pair<const Rotary*, Table>> tables_;
};

}  // namespace strait::models

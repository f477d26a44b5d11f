#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace strait::kernels {

// A dropout mask is a function of this. `layer` is a global index; `site` distinguishes the
// dropouts of one layer. The partition of the model and repeated forwards do not matter.
struct DropoutKey {
  std::uint64_t seed = 0;
  std::uint64_t step = 0;
  std::uint64_t micro_batch = 0;
  std::uint64_t layer = 0;
  std::uint64_t site = 0;
};

// bool, true with probability 1 - probability. Same key, sizes and device kind: same mask.
at::Tensor keep_mask(at::IntArrayRef sizes, double probability, const DropoutKey& key,
                     at::Device device);

// input · mask / (1 - probability), differentiable. A probability of zero returns the input itself.
at::Tensor dropout(const at::Tensor& input, double probability, const DropoutKey& key);

}  // namespace strait::kernels

#include "kernels/dropout.h"

#include <ATen/ATen.h>

#include "kernels/random_key.h"

namespace strait::kernels {

at::Tensor keep_mask(at::IntArrayRef sizes, double probability, const DropoutKey& key,
                     at::Device device) {
  at::Generator generator =
      keyed_generator(mix_key({key.seed, key.step, key.micro_batch, key.layer, key.site}), device);
  at::Tensor mask = at::empty(sizes, at::TensorOptions(at::kBool).device(device));
  mask.bernoulli_(1.0 - probability, generator);
  return mask;
}

at::Tensor dropout(const at::Tensor& input, double probability, const DropoutKey& key) {
  if (probability == 0.0) return input;
  const at::Tensor mask = keep_mask(input.sizes(), probability, key, input.device());
  // A probability of one keeps nothing: the result is zero, not zero times infinity.
  const double scale = probability < 1.0 ? 1.0 / (1.0 - probability) : 0.0;
  return input.mul(mask).mul(scale);
}

}  // namespace strait::kernels

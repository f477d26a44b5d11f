#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string_view>

namespace strait::kernels {

// Random numbers depend on their purpose, never on earlier draws: the parts of the purpose are
// mixed into a key, and a new generator with that key draws. So any split of the work gives the
// same numbers. Pure; any thread may call.
std::uint64_t mix_key(std::initializer_list<std::uint64_t> parts);
std::uint64_t hash_name(std::string_view name);

// A new generator for `device`, seeded with `key`; the default generators do not change. The same
// key gives other numbers on another kind of device.
at::Generator keyed_generator(std::uint64_t key, at::Device device);

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

namespace cpu {
// The token that `chance`, of [0, 1), falls on where the probabilities of softmax(logits /
// temperature) lie one after the other. In one thread; weights are in float32, sums of them in
// float64, in an order that depends on the instruction set alone.
std::int64_t draw_token(std::span<const float> logits, double temperature, double chance);
}  // namespace cpu

}  // namespace strait::kernels

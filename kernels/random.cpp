#include "kernels/random.h"

#include <ATen/ATen.h>

#include <mutex>

#include "framework/mixed_bits.h"
#include "kernels/parallel.h"

namespace strait::kernels {
namespace {

constexpr std::int64_t kFewestDraws = 1 << 14;  // of a thread; fewer are drawn sooner than shared

// Each value depends on its index alone, so threads can share the work. at::bernoulli_ draws one
// value after the other: in a small GPT-2 that took an eighth of a step.
void draw_mask(bool* mask, std::int64_t count, double kept, std::uint64_t key) {
  const auto bound = static_cast<std::uint64_t>(kept * 0x1p32);
  const auto is_kept = [&](std::uint64_t draw) { return (draw & 0xffffffffU) < bound; };
  parallel_for((count + 1) / 2, kFewestDraws, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t pair = begin; pair < end; ++pair) {
      const std::uint64_t draws = mixed_bits(key + static_cast<std::uint64_t>(pair));
      mask[2 * pair] = is_kept(draws);
      if (2 * pair + 1 < count) mask[2 * pair + 1] = is_kept(draws >> 32U);
    }
  });
}

}  // namespace

std::uint64_t mix_key(std::initializer_list<std::uint64_t> parts) {
  std::uint64_t key = 0x9e3779b97f4a7c15ULL;
  // The sum distinguishes (1, 2) from (2, 1), because the earlier part is mixed by then.
  for (const std::uint64_t part : parts) key = mixed_bits(key + mixed_bits(part));
  return key;
}

std::uint64_t hash_name(std::string_view name) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;  // FNV-1a
  for (const char c : name) {
    hash ^= static_cast<unsigned char>(c);
    hash *= 0x100000001b3ULL;
  }
  return hash;
}

at::Generator keyed_generator(std::uint64_t key, at::Device device) {
  at::Generator standard = at::globalContext().defaultGenerator(device);
  at::Generator own;
  {
    const std::scoped_lock lock(standard.mutex());
    own = standard.clone();
  }
  own.set_current_seed(key);
  return own;
}

at::Tensor keep_mask(at::IntArrayRef sizes, double probability, const DropoutKey& key,
                     at::Device device) {
  const std::uint64_t mixed = mix_key({key.seed, key.step, key.micro_batch, key.layer, key.site});
  at::Tensor mask = at::empty(sizes, at::TensorOptions(at::kBool).device(device));
  if (device.is_cpu()) {
    draw_mask(mask.data_ptr<bool>(), mask.numel(), 1.0 - probability, mixed);
  } else {
    mask.bernoulli_(1.0 - probability, keyed_generator(mixed, device));
  }
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

#include "kernels/random_key.h"

#include <ATen/ATen.h>

#include <mutex>

namespace strait::kernels {
namespace {

// The finalizer of SplitMix64: every input bit reaches every output bit.
std::uint64_t scramble(std::uint64_t value) {
  value ^= value >> 30U;
  value *= 0xbf58476d1ce4e5b9ULL;
  value ^= value >> 27U;
  value *= 0x94d049bb133111ebULL;
  value ^= value >> 31U;
  return value;
}

}  // namespace

std::uint64_t mix_key(std::initializer_list<std::uint64_t> parts) {
  constexpr std::uint64_t kGolden = 0x9e3779b97f4a7c15ULL;
  std::uint64_t key = kGolden;
  // The sum keeps (1, 2) and (2, 1) apart, because what was mixed before is scrambled by then.
  for (const std::uint64_t part : parts) key = scramble(key + kGolden + scramble(part + kGolden));
  return key;
}

std::uint64_t hash_name(std::string_view name) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;  // FNV-1a
  for (const char letter : name) {
    hash ^= static_cast<unsigned char>(letter);
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

}  // namespace strait::kernels

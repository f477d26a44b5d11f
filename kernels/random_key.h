#pragma once

#include <ATen/core/Generator.h>

#include <cstdint>
#include <initializer_list>
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

}  // namespace strait::kernels

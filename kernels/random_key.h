#pragma once

#include <ATen/core/Generator.h>

#include <cstdint>
#include <initializer_list>
#include <string_view>

namespace strait::kernels {

// Randomness here is a function of what it is for, never of what was drawn before: parts are mixed
// into a key, and a fresh generator of that key draws. So any split of the work gives the same
// numbers. Pure; any thread may call.
std::uint64_t mix_key(std::initializer_list<std::uint64_t> parts);
std::uint64_t hash_name(std::string_view name);

// A generator of its own for `device`, seeded with `key`. The default generators stay as they are.
// The same key gives other numbers on another kind of device.
at::Generator keyed_generator(std::uint64_t key, at::Device device);

}  // namespace strait::kernels

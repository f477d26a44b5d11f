#pragma once

#include <cstdint>
#include <string_view>

namespace strait::recipe {

// A GPU by name, with its published figures.
struct KnownGpu {
  std::string_view name;   // "RTX 4090", as its driver calls it, without the maker
  double tensor_tflops;    // dense, bfloat16 with float32 sums; 0: it has no such unit
  double float32_tflops;   // without tensor units
  std::int64_t gibibytes;  // of the smallest one of this name
};

// `name` as a driver or a person writes it: "NVIDIA GeForce RTX 4090", "rtx4090", "A100-SXM4-80GB".
// Null: not known.
const KnownGpu* known_gpu(std::string_view name);

}  // namespace strait::recipe

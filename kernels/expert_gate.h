#pragma once

#include <cstdint>

namespace strait::kernels::cpu {

// The product between the matrices of an expert, of its rows in contiguous float32. A row of
// `inner` has all gates and then all other factors: silu(gate) · up. With a limit it has them by
// pairs, as in clamped_product().
struct ExpertGate {
  const float* inner = nullptr;    // [rows, 2 · width]
  const float* weights = nullptr;  // [rows]: of the results
  float* product = nullptr;        // [rows, width]: times its weight
  std::int64_t width = 0;
  float slope = 0;
  float limit = 0;  // 0: no limit
};
// The rows `first` to `last`.
void expert_gate(const ExpertGate& all, std::int64_t first, std::int64_t last);

// The same with gradients. `product` may be null.
struct ExpertGateGradient {
  ExpertGate forward;
  const float* slopes = nullptr;     // [rows, width]: of the product without the weight
  float* inner_gradient = nullptr;   // [rows, 2 · width]
  float* weight_gradient = nullptr;  // [rows]
};
void expert_gate_gradient(const ExpertGateGradient& all, std::int64_t first, std::int64_t last);

}  // namespace strait::kernels::cpu

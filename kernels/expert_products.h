#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "kernels/expert_rows.h"
#include "kernels/gated_product.h"

namespace strait::kernels {

// The leaves of an expert's MLP.
struct ExpertMatrices {
  at::Tensor gate;     // undefined: `up` gives both
  at::Tensor up;       // [inner, hidden], or [2 · inner, hidden]
  at::Tensor up_bias;  // undefined: none
  at::Tensor down;     // [hidden, inner]
  at::Tensor down_bias;
};

struct ExpertForm {
  bool input_first = false;  // matrices are [in, out]
  ClampedGate clamped;       // without a limit: silu(gate) · up
};

// Whether expert_products() computes these: float32 on the CPU.
bool expert_products_take(const at::Tensor& tokens, const std::vector<ExpertMatrices>& experts);

// Every token's sum of the results of its experts, each times its weight, differentiable: tokens
// [tokens, hidden] and weights [tokens, ways] to [tokens, hidden]. Keeps the tokens and two inner
// values of each row for the backward, which adds gradients of leaves in place (linear.h), and may
// queue them.
//
// Threads share the experts, and each product is computed by one of them, unless there are too few
// experts for that. So bits depend on shapes, on the rows of the experts and on the number of
// threads.
at::Tensor expert_products(const at::Tensor& tokens, const at::Tensor& weights,
                           const ExpertRows& rows, const std::vector<ExpertMatrices>& experts,
                           const ExpertForm& form);

}  // namespace strait::kernels

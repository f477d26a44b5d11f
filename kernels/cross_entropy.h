#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>

namespace strait::kernels {

// The last matrix of a language model: logits = hidden · weightᵀ + bias.
struct Projection {
  at::Tensor weight;   // [vocabulary, hidden]
  at::Tensor bias;     // [vocabulary]; undefined: none
  double softcap = 0;  // logits become softcap · tanh(logits / softcap); 0: unchanged
};

// The same memory, detached from autograd.
Projection detached(const Projection& leaves);

// [rows, hidden] to [rows, vocabulary], float32.
at::Tensor project_logits(const Projection& projection, const at::Tensor& hidden);

struct CrossEntropyResult {
  at::Tensor loss_sum;         // over all targets, natural logarithm, not scaled: a float64 scalar
  at::Tensor hidden_gradient;  // [targets, hidden] in the type of `hidden`, times scale
};

// Cross-entropy fused with the projection. Works on a few rows at a time, so that all logits never
// exist at once. The number of rows depends on the weight, the number of targets and whether a
// GPU's kernel is used, so every sum has one order on a device. Operators have logits in float32,
// the kernel in the type of the inputs; both compute in float32. Without autograd: the gradients
// are computed here.
//
// `hidden` [targets, hidden] has only rows with a target; `targets` is int64 [targets], checked by
// check_targets(). All tensors are on one device, and nothing waits for it. The scaled gradients of
// weight and bias are added to the float32 tensors of `gradient`; undefined ones are not computed.
// With `weights`, float32 [targets], every target's gradient is multiplied by its weight. Borrows
// everything. Any thread may call, one at a time per `gradient`.
CrossEntropyResult cross_entropy(const Projection& projection, const at::Tensor& hidden,
                                 const at::Tensor& targets, double scale,
                                 const Projection& gradient, const at::Tensor& weights = {});

// The same sum with the same bits, without gradients: for evaluation.
at::Tensor cross_entropy_loss(const Projection& projection, const at::Tensor& hidden,
                              const at::Tensor& targets);

// The logarithm of each target's probability, float64 [targets], without gradients.
at::Tensor log_probabilities(const Projection& projection, const at::Tensor& hidden,
                             const at::Tensor& targets);

// Throws std::out_of_range if a target is outside the vocabulary. Takes values of the host, because
// checking a tensor would wait for its device.
void check_targets(std::span<const std::int64_t> targets, std::int64_t vocabulary);

// The most rows of logits that the operators hold at once. The kernel holds more rows in the same
// memory.
std::int64_t cross_entropy_rows(std::int64_t vocabulary, std::int64_t hidden);

}  // namespace strait::kernels

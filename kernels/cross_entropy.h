#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>

namespace strait::kernels {

// The last matrix of a language model: logits = hidden · weightᵀ + bias.
struct Projection {
  at::Tensor weight;   // [vocabulary, hidden]
  at::Tensor bias;     // [vocabulary]; undefined: none
  double softcap = 0;  // logits become softcap · tanh(logits / softcap); 0: they stay
};

// The same memory without autograd.
Projection detached(const Projection& leaves);

// [rows, hidden] to [rows, vocabulary], float32.
at::Tensor project_logits(const Projection& projection, const at::Tensor& hidden);

struct CrossEntropyResult {
  at::Tensor loss_sum;         // over all targets, natural logarithm, not scaled: a float64 scalar
  at::Tensor hidden_gradient;  // [targets, hidden] in the type of `hidden`, times scale
};

// Cross-entropy fused with the projection. Works on a few rows at a time, so that the logits of all
// of them never exist at once; how many is a function of the weight, the number of targets and
// whether a GPU's kernel takes them, so every sum has one order on a device. The operators have
// logits in float32 from the product on, the kernel in the type of the inputs; both compute in
// float32. No autograd: the gradients are made here.
//
// `hidden` [targets, hidden] has only rows with a target; `targets` is int64 [targets], checked by
// check_targets(). All tensors are on one device, and nothing waits for it. The gradients of weight
// and bias, times scale, are added into the float32 tensors of `gradient`; one that is undefined is
// not computed. Borrows everything; any thread may call, one at a time per `gradient`.
CrossEntropyResult cross_entropy(const Projection& projection, const at::Tensor& hidden,
                                 const at::Tensor& targets, double scale,
                                 const Projection& gradient);

// The same sum, to the same bits, without gradients: for evaluation.
at::Tensor cross_entropy_loss(const Projection& projection, const at::Tensor& hidden,
                              const at::Tensor& targets);

// Throws std::out_of_range if a target is outside the vocabulary. Of the host's values: a check of
// a tensor would wait for its device.
void check_targets(std::span<const std::int64_t> targets, std::int64_t vocabulary);

// The most rows that the operators hold logits of at once; by the kernel more of them are as much
// memory.
std::int64_t cross_entropy_rows(std::int64_t vocabulary, std::int64_t hidden);

}  // namespace strait::kernels

#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>

#include "launcher/run/inference.h"

namespace strait::worker {

// The next token of a sequence that has these tokens, from its logits (float32, one for each token
// of the vocabulary). A pure function: chance depends on the seed, the sequence and its length, so
// that other sequences, their order and the stages change nothing.
std::int64_t choose_token(const at::Tensor& logits, const run::Sampling& sampling,
                          std::int64_t sequence, std::span<const std::int32_t> tokens);

}  // namespace strait::worker

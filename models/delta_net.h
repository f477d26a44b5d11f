#pragma once

#include <ATen/core/Tensor.h>

#include "kernels/delta_rule.h"
#include "models/linear.h"
#include "models/norm.h"

namespace strait::models {

class SequenceCache;
struct DecoderConfig;

// A block's recurrent layer in place of attention, as a family's config.json describes it.
struct DeltaOptions {
  std::int64_t key_heads = 0;
  std::int64_t heads = 0;  // a multiple of the key heads
  std::int64_t key_width = 0;
  std::int64_t width = 0;
  std::int64_t taps = 0;  // tokens that the convolution adds up

  std::int64_t keys() const { return key_heads * key_width; }
  std::int64_t values() const { return heads * width; }
  std::int64_t channels() const { return 2 * keys() + values(); }
};

// Gated DeltaNet: queries, keys and values through a short convolution, the gated delta rule over
// the tokens of a document, a norm and a gate. Convolution and state begin anew in every document.
class DeltaNet {
 public:
  DeltaNet(ParameterMaker& maker, int index, const DecoderConfig& config);
  at::Tensor forward(const at::Tensor& input, const Pass& pass) const;

 private:
  // What the matrices make of the input.
  struct Projected {
    at::Tensor mixed;
    at::Tensor gate;
    at::Tensor beta;
    at::Tensor decay;
  };
  // The input of the output matrix. `past`: after the tokens that it remembers; null: documents.
  at::Tensor mix_tokens(const Projected& inputs, const Pass& pass, SequenceCache* past) const;
  at::Tensor convolve(const at::Tensor& mixed, at::Tensor& past) const;
  at::Tensor recur(const kernels::DeltaHeads& heads, at::Tensor& state) const;

  int layer_;
  DeltaOptions options_;
  Linear mix_;  // queries, keys and values
  Linear gate_;
  Linear beta_;
  Linear decay_;
  at::Tensor convolution_;
  at::Tensor decay_bias_;
  at::Tensor decay_rate_;  // its logarithm
  Norm norm_;
  Linear output_;
};

}  // namespace strait::models

#pragma once

#include <string>

#include "models/attention.h"
#include "models/embedding.h"
#include "models/gpt2_config.h"
#include "models/layer.h"
#include "models/layer_norm.h"
#include "models/mlp.h"

namespace strait::models {

// Tokens and positions. Layer 0.
class Gpt2Embedding final : public Layer {
 public:
  Gpt2Embedding(const Gpt2Config& config, ParameterMaker maker);
  at::Tensor forward(const at::Tensor& tokens, const Pass& pass) override;
  const at::Tensor& tokens() const { return tokens_.weight(); }

 private:
  double dropout_;
  Embedding tokens_;
  Embedding positions_;
};

// One block, `index` counted with the embedding, so that the first is 1.
class Gpt2Block final : public Layer {
 public:
  Gpt2Block(int index, const Gpt2Config& config, ParameterMaker maker);
  at::Tensor forward(const at::Tensor& input, const Pass& pass) override;

 private:
  at::Tensor attention(const at::Tensor& input, const Pass& pass) const;

  std::int64_t heads_;
  double dropout_;
  AttentionOptions attention_options_;
  LayerNorm attention_norm_;
  Linear query_key_value_;
  Linear attention_output_;
  LayerNorm mlp_norm_;
  Mlp mlp_;
};

// The final norm and the projection, which is the token table's other use where they are tied.
class Gpt2LmHead final : public Head {
 public:
  // `tokens`: the token table if it is on this stage.
  Gpt2LmHead(const Gpt2Config& config, ParameterMaker maker, const at::Tensor& tokens);
  at::Tensor forward(const at::Tensor& input, const Pass& pass) override;

 private:
  LayerNorm norm_;
};

std::string gpt2_block_prefix(int index);  // "transformer.h.0." of layer 1
inline constexpr const char* kGpt2Tokens = "transformer.wte";
inline constexpr const char* kGpt2TokenTable = "transformer.wte.weight";
inline constexpr const char* kGpt2Positions = "transformer.wpe";
inline constexpr const char* kGpt2FinalNorm = "transformer.ln_f";
inline constexpr const char* kGpt2LmHead = "lm_head.weight";

}  // namespace strait::models

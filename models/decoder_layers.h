#pragma once

#include <variant>

#include "models/attention.h"
#include "models/decoder_config.h"
#include "models/delta_net.h"
#include "models/embedding.h"
#include "models/experts.h"
#include "models/latent_attention.h"
#include "models/layer.h"
#include "models/mlp.h"

namespace strait::models {

// Layer 0: the token table, and the position table if positions are learned.
class DecoderEmbedding final : public Layer {
 public:
  DecoderEmbedding(const DecoderConfig& config, ParameterMaker maker);
  at::Tensor forward(const at::Tensor& tokens, const Pass& pass) override;
  const Embedding& tokens() const { return tokens_; }

 private:
  double scale_;
  double dropout_;
  std::int64_t position_offset_;
  Embedding tokens_;
  std::optional<Linear> project_in_;
  std::optional<Embedding> positions_;
};

// Queries, keys and values of a block's input, attention, and the output matrix.
class SelfAttention {
 public:
  SelfAttention(ParameterMaker& maker, int index, const DecoderConfig& config);
  at::Tensor forward(const at::Tensor& input, const Pass& pass) const;

 private:
  kernels::AttentionHeads project(const at::Tensor& input, const Pass& pass) const;

  std::int64_t heads_;
  std::int64_t key_heads_;
  std::int64_t width_;
  QueryKeyValue layout_;
  AttentionOptions options_;
  bool output_gate_;
  bool norms_whole_heads_;
  double limit_;
  QueryGrowth growth_;
  std::shared_ptr<const Rotary> rotary_;
  std::vector<Linear> inputs_;  // query, key, value; or one fused matrix
  std::optional<Norm> query_norm_;
  std::optional<Norm> key_norm_;
  at::Tensor sinks_;
  std::optional<Linear> output_;
};

// One block, with an MLP or with experts. `index` counts from 1, because the embedding is layer 0.
class DecoderBlock final : public Layer {
 public:
  DecoderBlock(int index, const DecoderConfig& config, ParameterMaker maker);
  at::Tensor forward(const at::Tensor& input, const Pass& pass) override;

 private:
  at::Tensor think(const at::Tensor& input, const Pass& pass) const;  // the MLP and its dropout

  Residual residual_;
  double scale_;
  double dropout_;
  std::optional<Norm> attention_norm_;
  std::variant<SelfAttention, LatentAttention, DeltaNet> attention_;
  std::optional<Norm> after_attention_norm_;
  std::optional<Norm> mlp_norm_;
  std::variant<Mlp, ExpertMlp> mlp_;
  std::optional<Norm> after_mlp_norm_;
};

// The final norm and the projection. In tied models the projection is the token table.
class DecoderHead final : public Head {
 public:
  // `tokens`: the token table if it is on this stage.
  DecoderHead(const DecoderConfig& config, ParameterMaker maker, const at::Tensor& tokens);
  at::Tensor forward(const at::Tensor& input, const Pass& pass) override;

 private:
  double scale_;
  std::optional<Norm> norm_;
  std::optional<Linear> project_out_;
};

}  // namespace strait::models

#include "models/gpt2_layers.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <cmath>

#include "kernels/dropout.h"

namespace strait::models {
namespace {

// The dropouts of one layer, by number: part of the key of their masks, so the numbers stay.
constexpr int kEmbeddingSite = 0;
constexpr int kProbabilitySite = 0;
constexpr int kAttentionSite = 1;
constexpr int kMlpSite = 2;

LinearShape gpt2_matrix(std::int64_t input, std::int64_t output) {
  return {input, output, MatrixLayout::input_output, true};
}

AttentionOptions gpt2_attention(int index, const Gpt2Config& config) {
  double scale = 1;
  if (config.scale_by_width) scale = 1 / std::sqrt(static_cast<double>(config.head_width()));
  // Layer 1 is the first block, which the family counts as number 0 and divides by 1.
  if (config.scale_by_block_index) scale /= index;
  return {scale, config.attention_dropout, index, kProbabilitySite};
}

at::Tensor drop(const at::Tensor& values, double probability, const Pass& pass, int layer,
                int site) {
  return pass.training ? kernels::dropout(values, probability, pass.dropout_key(layer, site))
                       : values;
}

}  // namespace

std::string gpt2_block_prefix(int index) { return fmt::format("transformer.h.{}.", index - 1); }

Gpt2Embedding::Gpt2Embedding(const Gpt2Config& config, ParameterMaker maker)
    : Layer(0),
      dropout_(config.embedding_dropout),
      tokens_(maker, kGpt2Tokens, config.vocabulary, config.hidden, "token"),
      positions_(maker, kGpt2Positions, config.positions, config.hidden, "position") {
  adopt(maker);
}

at::Tensor Gpt2Embedding::forward(const at::Tensor& tokens, const Pass& pass) {
  const at::Tensor sum = tokens_.forward(tokens) + positions_.forward(pass.positions);
  return drop(sum, dropout_, pass, index(), kEmbeddingSite);
}

Gpt2Block::Gpt2Block(int index, const Gpt2Config& config, ParameterMaker maker)
    : Layer(index),
      heads_(config.heads),
      dropout_(config.residual_dropout),
      attention_options_(gpt2_attention(index, config)),
      attention_norm_(maker, gpt2_block_prefix(index) + "ln_1", config.hidden, config.norm_epsilon),
      query_key_value_(maker, gpt2_block_prefix(index) + "attn.c_attn",
                       gpt2_matrix(config.hidden, 3 * config.hidden)),
      attention_output_(maker, gpt2_block_prefix(index) + "attn.c_proj",
                        gpt2_matrix(config.hidden, config.hidden)),
      mlp_norm_(maker, gpt2_block_prefix(index) + "ln_2", config.hidden, config.norm_epsilon),
      // Braces: the two matrices are made in the order written.
      mlp_{Linear(maker, gpt2_block_prefix(index) + "mlp.c_fc",
                  gpt2_matrix(config.hidden, config.inner)),
           config.activation,
           Linear(maker, gpt2_block_prefix(index) + "mlp.c_proj",
                  gpt2_matrix(config.inner, config.hidden))} {
  adopt(maker);
}

at::Tensor Gpt2Block::attention(const at::Tensor& input, const Pass& pass) const {
  const std::int64_t width = input.size(2) / heads_;
  const auto by_head = [&](const at::Tensor& values) {
    return values.view({values.size(0), values.size(1), heads_, width}).transpose(1, 2);
  };
  const std::vector<at::Tensor> parts =
      query_key_value_.forward(input).split(input.size(2), /*dim=*/2);
  const AttentionInputs inputs{by_head(parts[0]), by_head(parts[1]), by_head(parts[2])};
  return attention_output_.forward(attend(inputs, attention_options_, pass));
}

at::Tensor Gpt2Block::forward(const at::Tensor& input, const Pass& pass) {
  const at::Tensor attended = attention(attention_norm_.forward(input), pass);
  const at::Tensor middle = input + drop(attended, dropout_, pass, index(), kAttentionSite);
  const at::Tensor thought = mlp_.forward(mlp_norm_.forward(middle));
  return middle + drop(thought, dropout_, pass, index(), kMlpSite);
}

Gpt2LmHead::Gpt2LmHead(const Gpt2Config& config, ParameterMaker maker, const at::Tensor& tokens)
    : Head(static_cast<int>(config.blocks) + 1),
      norm_(maker, kGpt2FinalNorm, config.hidden, config.norm_epsilon) {
  const std::vector<std::int64_t> shape{config.vocabulary, config.hidden};
  set_projection(config.tied ? maker.make_tied(kGpt2TokenTable, shape, tokens)
                             : maker.make(kGpt2LmHead, shape),
                 at::Tensor());
  adopt(maker);
}

at::Tensor Gpt2LmHead::forward(const at::Tensor& input, const Pass& /*pass*/) {
  return norm_.forward(input);
}

}  // namespace strait::models

#pragma once

#include "models/activation.h"
#include "models/delta_net.h"
#include "models/experts.h"
#include "models/latent_attention.h"
#include "models/linear.h"
#include "models/norm.h"
#include "models/rotary.h"

namespace strait::models {

// How attention and MLP of a block are added to its input x.
enum class Residual : std::uint8_t {
  serial,    // x += attention(norm(x)); x += mlp(norm(x)); without a norm where it has no name
  parallel,  // x += attention(norm(x)) + mlp(norm(x))
  after,     // x = norm(x + attention(x)); x = norm(x + mlp(x))
  sandwich,  // x += norm(attention(norm(x))); x += norm(mlp(norm(x)))
};

// Which matrices give queries, keys and values.
enum class QueryKeyValue : std::uint8_t {
  separate,
  fused,          // one matrix: all queries, then all keys, then all values
  fused_by_head,  // one matrix: query, key and value of the first head, then of the next
};

// Names of tensors in the family's files, without ".weight". Names of a block's tensors follow
// "BLOCKSN.". Empty: the family does not have this tensor.
struct DecoderNames {
  std::string tokens = "model.embed_tokens";
  std::string positions;
  std::string project_in;
  std::string blocks = "model.layers.";
  std::string attention_norm = "input_layernorm";
  std::string query = "self_attn.q_proj";
  std::string key = "self_attn.k_proj";
  std::string value = "self_attn.v_proj";
  std::string query_key_value;
  std::string query_norm;
  std::string key_norm;
  std::string sinks;
  std::string attention_output = "self_attn.o_proj";
  std::string recurrent = "linear_attn.";  // followed by the names of a DeltaNet
  std::string after_attention_norm;
  std::string mlp_norm = "post_attention_layernorm";  // empty: attention's norm feeds the MLP, too
  std::string gate = "mlp.gate_proj";
  std::string up = "mlp.up_proj";
  std::string gate_up;
  std::string down = "mlp.down_proj";
  std::string router = "mlp.gate";
  std::string shared_expert = "mlp.shared_expert.";  // followed by the names of an expert
  std::string shared_expert_gate = "mlp.shared_expert_gate";
  std::string experts = "mlp.experts.";  // followed by the number of an expert and these
  std::string expert_gate = "gate_proj";
  std::string expert_up = "up_proj";
  std::string expert_down = "down_proj";
  std::string expert_gate_up;
  std::string after_mlp_norm;
  std::string final_norm = "model.norm";
  std::string project_out;
  std::string head = "lm_head";
};

// A decoder-only transformer as its family's config.json describes it, with absent fields filled
// in. All families consist of the same layers (decoder_layers.h) with different values here.
struct DecoderConfig {
  std::int64_t vocabulary = 0;
  std::int64_t positions = 0;  // the longest row
  std::int64_t hidden = 0;
  std::int64_t blocks = 0;
  std::int64_t heads = 0;
  std::int64_t key_heads = 0;   // number of heads of keys and values; a divisor of `heads`
  std::int64_t head_width = 0;  // need not be hidden / heads
  std::int64_t inner = 0;       // of the MLP
  DecoderNames names;
  bool tied = false;
  double initializer_range = 0.02;

  // Embedding.
  std::int64_t embedding_width = 0;  // 0: hidden; else a matrix widens the tokens' vectors
  std::int64_t padding_token = -1;   // its row gets no gradient from the input; -1: none
  double embedding_scale = 1;        // rounded to the type of the weights
  std::int64_t position_offset = 0;  // position p is row p + offset of the table

  // Attention.
  QueryKeyValue query_key_value = QueryKeyValue::separate;
  double attention_scale = 1;         // of scores
  bool scale_by_block_index = false;  // scores are divided by the block's number, counted from 1
  double attention_softcap = 0;
  bool output_gate = false;          // the query matrix gives each head a gate of its result, too
  bool norms_whole_heads = false;    // query_norm and key_norm go over all heads of a token
  double query_key_value_limit = 0;  // values beyond it are cut off; 0: none
  std::int64_t window = 0;           // number of keys that a query of a windowed block sees
  std::vector<bool> windowed;        // by block; empty: none
  std::shared_ptr<const Rotary> rotary;         // null: none
  std::shared_ptr<const Rotary> window_rotary;  // in windowed blocks; null: `rotary`
  std::vector<bool> unrotated;                  // by block; empty: none
  QueryGrowth query_growth;
  LatentOptions latent;  // of all blocks

  // Recurrent blocks, which have a DeltaNet in place of attention.
  DeltaOptions recurrent;
  std::vector<bool> recurrent_blocks;  // empty: none

  // Blocks.
  Residual residual = Residual::serial;
  double residual_scale = 1;  // of attention and MLP, before they are added
  NormOptions norm;
  MatrixLayout layout = MatrixLayout::output_input;
  bool gated = true;  // mlp(x) = down(activation(gate(x)) · up(x)); else down(activation(up(x)))
  Activation activation = Activation::silu;
  bool query_key_value_bias = false;
  bool attention_output_bias = false;
  bool mlp_bias = false;
  bool small_ends = false;  // the last matrices of residual branches are drawn smaller with depth

  // Sparse blocks, which have experts in place of the MLP.
  ExpertOptions experts;
  std::vector<bool> sparse;  // by block; empty: none

  // Blocks of the files that are not the model's: they predict more tokens.
  std::vector<std::int64_t> prediction_blocks;

  double embedding_dropout = 0;
  double attention_dropout = 0;
  double residual_dropout = 0;

  // Head.
  bool has_final_norm = true;
  bool head_bias = false;
  double final_softcap = 0;
  double final_scale = 1;  // of the normalised values, and so of the logits

  std::int64_t token_width() const { return embedding_width > 0 ? embedding_width : hidden; }
  static bool is_among(const std::vector<bool>& blocks, std::int64_t block) {
    return !blocks.empty() && blocks[static_cast<std::size_t>(block)];
  }
  bool block_windowed(std::int64_t block) const { return is_among(windowed, block); }
  bool block_sparse(std::int64_t block) const { return is_among(sparse, block); }
  bool block_unrotated(std::int64_t block) const { return is_among(unrotated, block); }
  bool block_recurrent(std::int64_t block) const { return is_among(recurrent_blocks, block); }
  std::string block_prefix(int index) const {  // block 0 is layer 1
    return names.blocks + std::to_string(index - 1) + ".";
  }
};

}  // namespace strait::models

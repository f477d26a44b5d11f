#include <cmath>

#include "models/config_fields.h"
#include "models/decoder.h"

namespace strait::models {
namespace {

// Learned positions begin in the third row of their table. The 350m model has its norms after the
// sums, no final norm, and tokens narrower than the hidden width.
DecoderConfig read_opt(const ConfigReader& reader) {
  DecoderConfig config;
  config.names.tokens = "model.decoder.embed_tokens";
  config.names.positions = "model.decoder.embed_positions";
  config.names.blocks = "model.decoder.layers.";
  config.names.attention_norm = "self_attn_layer_norm";
  config.names.attention_output = "self_attn.out_proj";
  config.names.mlp_norm = "final_layer_norm";
  config.names.up = "fc1";
  config.names.down = "fc2";
  config.names.final_norm = "model.decoder.final_layer_norm";
  config.vocabulary = reader.integer("vocab_size", 50272, 1, kLargestSize);
  config.positions = reader.integer("max_position_embeddings", 2048, 1, kLargestSize);
  config.position_offset = 2;
  config.hidden = reader.integer("hidden_size", 768, 1, kLargestSize);
  config.blocks = reader.integer("num_hidden_layers", 12, 1, kLargestSize);
  config.heads = reader.integer("num_attention_heads", 12, 1, kLargestSize);
  config.key_heads = config.heads;
  config.head_width = divided_width(reader, "num_attention_heads", config.hidden, config.heads);
  config.inner = reader.integer("ffn_dim", 3072, 1, kLargestSize);
  config.activation = read_activation(reader, "activation_function", "relu");
  config.residual_dropout = reader.number("dropout", 0.1, 0, 1);
  config.attention_dropout = reader.number("attention_dropout", 0, 0, 1);
  config.norm = {NormKind::layer, 1e-5};
  config.initializer_range = reader.number("init_std", 0.02, 0, 100);
  config.attention_scale = 1 / std::sqrt(static_cast<double>(config.head_width));
  config.tied = reader.boolean("tie_word_embeddings", true);
  config.padding_token = read_padding_token(reader, config.vocabulary, 1);
  config.gated = false;
  const bool biases = reader.boolean("enable_bias", true);
  config.query_key_value_bias = config.attention_output_bias = config.mlp_bias = biases;
  const bool norm_first = reader.boolean("do_layer_norm_before", true);
  config.residual = norm_first ? Residual::serial : Residual::after;
  config.has_final_norm = norm_first && !reader.boolean("_remove_final_layer_norm", false);
  const std::int64_t width = reader.integer("word_embed_proj_dim", config.hidden, 1, kLargestSize);
  if (width != config.hidden) {
    config.embedding_width = width;
    config.names.project_in = "model.decoder.project_in";
    config.names.project_out = "model.decoder.project_out";
  }
  if (reader.number("layerdrop", 0, 0, 1) != 0) {
    reader.refuse("layerdrop", "0: layers are never dropped here");
  }
  if (!reader.boolean("layer_norm_elementwise_affine", true)) {
    reader.refuse("layer_norm_elementwise_affine", "true: norms have weights here");
  }
  return config;
}

FileNames opt_file_names() {
  FileNames names;
  names.head = "lm_head.weight";
  names.embedding = "model.decoder.embed_tokens.weight";
  names.prefix = "model.";
  names.parts = {"decoder"};
  return names;
}

}  // namespace

Family opt_family() { return decoder_family("opt", read_opt, opt_file_names()); }

}  // namespace strait::models

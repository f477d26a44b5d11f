#include <cmath>

#include "models/config_fields.h"
#include "models/decoder.h"

namespace strait::models {
namespace {

// Attention and MLP in parallel, each with its own norm before it. A quarter of every head is
// rotated. Query, key and value of a head are adjacent in one matrix.
DecoderConfig read_gpt_neox(const ConfigReader& reader) {
  DecoderConfig config;
  config.names.tokens = "gpt_neox.embed_in";
  config.names.blocks = "gpt_neox.layers.";
  config.names.query_key_value = "attention.query_key_value";
  config.names.attention_output = "attention.dense";
  config.names.up = "mlp.dense_h_to_4h";
  config.names.down = "mlp.dense_4h_to_h";
  config.names.final_norm = "gpt_neox.final_layer_norm";
  config.names.head = "embed_out";
  config.vocabulary = reader.integer("vocab_size", 50432, 1, kLargestSize);
  config.positions = reader.integer("max_position_embeddings", 2048, 1, kLargestSize);
  config.hidden = reader.integer("hidden_size", 6144, 1, kLargestSize);
  config.blocks = reader.integer("num_hidden_layers", 44, 1, kLargestSize);
  config.heads = reader.integer("num_attention_heads", 64, 1, kLargestSize);
  config.key_heads = config.heads;
  config.head_width = divided_width(reader, "num_attention_heads", config.hidden, config.heads);
  config.inner = reader.integer("intermediate_size", 24576, 1, kLargestSize);
  config.activation = read_activation(reader, "hidden_act", "gelu");
  config.residual_dropout = reader.number("hidden_dropout", 0, 0, 1);
  config.embedding_dropout = config.residual_dropout;
  config.attention_dropout = reader.number("attention_dropout", 0, 0, 1);
  config.norm = {NormKind::layer, reader.number("layer_norm_eps", 1e-5, 0, 1)};
  config.initializer_range = reader.number("initializer_range", 0.02, 0, 100);
  config.attention_scale = 1 / std::sqrt(static_cast<double>(config.head_width));
  config.tied = reader.boolean("tie_word_embeddings", false);
  config.residual =
      reader.boolean("use_parallel_residual", true) ? Residual::parallel : Residual::serial;
  config.query_key_value = QueryKeyValue::fused_by_head;
  config.gated = false;
  read_attention_bias(reader, config, true);
  config.mlp_bias = true;
  RotaryDefaults rotary;
  rotary.theta_field = "rotary_emb_base";
  rotary.share_field = "rotary_pct";
  rotary.share = 0.25;
  config.rotary = read_rotary(reader, config, rotary);
  return config;
}

FileNames gpt_neox_file_names() {
  FileNames names;
  names.head = "embed_out.weight";
  names.embedding = "gpt_neox.embed_in.weight";
  names.prefix = "gpt_neox.";
  names.parts = {"embed_in", "layers", "final_layer_norm"};
  // Masks and frequencies that old files store like weights.
  names.ignored = {".attention.bias", ".attention.masked_bias", ".rotary_emb.inv_freq"};
  names.aliases = {{"lm_head.weight", "embed_out.weight"}};
  return names;
}

}  // namespace

Family gpt_neox_family() {
  return decoder_family("gpt_neox", read_gpt_neox, gpt_neox_file_names());
}

}  // namespace strait::models

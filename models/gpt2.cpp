#include <cmath>

#include "models/config_fields.h"
#include "models/decoder.h"

namespace strait::models {
namespace {

// Learned positions, norms in front of attention and MLP, matrices stored [in, out], tied table.
DecoderConfig read_gpt2(const ConfigReader& reader) {
  DecoderConfig config;
  config.names = {};
  config.names.tokens = "transformer.wte";
  config.names.positions = "transformer.wpe";
  config.names.blocks = "transformer.h.";
  config.names.attention_norm = "ln_1";
  config.names.query_key_value = "attn.c_attn";
  config.names.attention_output = "attn.c_proj";
  config.names.mlp_norm = "ln_2";
  config.names.up = "mlp.c_fc";
  config.names.down = "mlp.c_proj";
  config.names.final_norm = "transformer.ln_f";
  config.vocabulary = reader.integer("vocab_size", 50257, 1, kLargestSize);
  config.positions = read_size(reader, "n_positions", "max_position_embeddings", 1024);
  config.hidden = read_size(reader, "n_embd", "hidden_size", 768);
  config.blocks = read_size(reader, "n_layer", "num_hidden_layers", 12);
  config.heads = read_size(reader, "n_head", "num_attention_heads", 12);
  config.key_heads = config.heads;
  config.head_width =
      divided_width(reader, reader.has("num_attention_heads") ? "num_attention_heads" : "n_head",
                    config.hidden, config.heads);
  config.inner = reader.integer("n_inner", 4 * config.hidden, 1, 4 * kLargestSize);
  config.activation = read_activation(reader, "activation_function", "gelu_new");
  config.residual_dropout = reader.number("resid_pdrop", 0.1, 0, 1);
  config.embedding_dropout = reader.number("embd_pdrop", 0.1, 0, 1);
  config.attention_dropout = reader.number("attn_pdrop", 0.1, 0, 1);
  config.norm = {NormKind::layer, reader.number("layer_norm_epsilon", 1e-5, 0, 1)};
  config.initializer_range = reader.number("initializer_range", 0.02, 0, 100);
  if (reader.boolean("scale_attn_weights", true)) {
    config.attention_scale = 1 / std::sqrt(static_cast<double>(config.head_width));
  }
  config.scale_by_block_index = reader.boolean("scale_attn_by_inverse_layer_idx", false);
  config.tied = reader.boolean("tie_word_embeddings", true);
  config.layout = MatrixLayout::input_output;
  config.query_key_value = QueryKeyValue::fused;
  config.gated = false;
  config.query_key_value_bias = config.attention_output_bias = config.mlp_bias = true;
  config.small_ends = true;
  if (reader.boolean("add_cross_attention", false)) {
    reader.refuse("add_cross_attention", "false: only decoders without cross-attention are built");
  }
  return config;
}

FileNames gpt2_file_names() {
  FileNames names;
  names.head = "lm_head.weight";
  names.embedding = "transformer.wte.weight";
  names.prefix = "transformer.";
  names.parts = {"wte", "wpe", "h", "ln_f"};
  // Masks that old files hold as if they were weights.
  names.ignored = {".attn.bias", ".attn.masked_bias"};
  return names;
}

}  // namespace

Family gpt2_family() {
  Family family = decoder_family("gpt2", read_gpt2, gpt2_file_names());
  family.input_first = true;
  return family;
}

}  // namespace strait::models

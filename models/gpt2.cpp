#include <cmath>

#include "models/config_fields.h"
#include "models/decoder.h"

namespace strait::models {
namespace {

// Learned positions, norms before attention and MLP, matrices stored as [in, out], tied table.
DecoderConfig read_gpt2(const ConfigReader& reader) {
  DecoderConfig family;
  family.names.tokens = "transformer.wte";
  family.names.positions = "transformer.wpe";
  family.names.blocks = "transformer.h.";
  family.names.attention_norm = "ln_1";
  family.names.query_key_value = "attn.c_attn";
  family.names.attention_output = "attn.c_proj";
  family.names.mlp_norm = "ln_2";
  family.names.up = "mlp.c_fc";
  family.names.down = "mlp.c_proj";
  family.names.final_norm = "transformer.ln_f";
  family.vocabulary = 50257;
  family.positions = 1024;
  family.hidden = 768;
  family.blocks = 12;
  family.heads = 12;
  family.residual_dropout = family.embedding_dropout = family.attention_dropout = 0.1;
  family.tied = true;
  DecoderConfig config = read_gpt2_fields(reader, family);
  if (reader.boolean("scale_attn_weights", true)) {
    config.attention_scale = 1 / std::sqrt(static_cast<double>(config.head_width));
  }
  config.scale_by_block_index = reader.boolean("scale_attn_by_inverse_layer_idx", false);
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
  // Masks that old files store like weights.
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

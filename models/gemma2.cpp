#include <cmath>

#include "models/config_fields.h"
#include "models/decoder.h"

namespace strait::models {

// Norms of 1 + weight on both sides of attention and MLP, tokens times √hidden, capped scores and
// logits, a window in every second layer.
DecoderConfig read_gemma_fields(const ConfigReader& reader, DecoderConfig family) {
  family.hidden = 2304;
  family.blocks = 26;
  family.heads = 8;
  family.key_heads = 4;
  family.head_width = 256;
  family.inner = 9216;
  family.tied = true;
  family.padding_token = 0;
  family.norm = {NormKind::rms_one_plus, 1e-6};
  family.residual = Residual::sandwich;
  family.names.after_attention_norm = "post_attention_layernorm";
  family.names.mlp_norm = "pre_feedforward_layernorm";
  family.names.after_mlp_norm = "post_feedforward_layernorm";
  DecoderConfig config = read_llama_fields(reader, family);
  config.embedding_scale = std::sqrt(static_cast<double>(config.hidden));
  config.activation = read_activation(reader, "hidden_activation", "gelu_pytorch_tanh");
  config.query_key_value_bias = reader.boolean("attention_bias", false);
  config.attention_output_bias = config.query_key_value_bias;
  config.attention_scale = 1 / std::sqrt(reader.number("query_pre_attn_scalar", 256, 1e-6, 1e9));
  if (reader.boolean("use_bidirectional_attention", false)) {
    reader.refuse("use_bidirectional_attention", "false: only causal attention is built");
  }
  return config;
}

namespace {

DecoderConfig read_gemma2(const ConfigReader& reader) {
  DecoderConfig family;
  family.vocabulary = 256000;
  family.positions = 8192;
  DecoderConfig config = read_gemma_fields(reader, family);
  config.attention_softcap = read_softcap(reader, "attn_logit_softcapping", 50);
  config.final_softcap = read_softcap(reader, "final_logit_softcapping", 30);
  read_windows(reader, config, 4096, [](std::int64_t block) { return block % 2 == 0; });
  config.rotary = read_rotary(reader, config, {});
  return config;
}

}  // namespace

Family gemma2_family() { return decoder_family("gemma2", read_gemma2, llama_file_names()); }

}  // namespace strait::models

#include "models/config_fields.h"
#include "models/decoder.h"

namespace strait::models {
namespace {

// Llama with norms after attention and MLP in place of those before, norms over all queries and all
// keys of a token, and windows in three of four blocks, where angles are never scaled.
DecoderConfig read_olmo3(const ConfigReader& reader) {
  DecoderConfig family;
  family.vocabulary = 50304;
  family.positions = 2048;
  family.hidden = 4096;
  family.blocks = 32;
  family.heads = 32;
  family.inner = 11008;
  family.padding_token = 1;
  family.norm = {NormKind::rms, 1e-5};
  family.residual = Residual::sandwich;
  family.names.attention_norm = "";
  family.names.after_attention_norm = "post_attention_layernorm";
  family.names.mlp_norm = "";
  family.names.after_mlp_norm = "post_feedforward_layernorm";
  family.names.query_norm = "self_attn.q_norm";
  family.names.key_norm = "self_attn.k_norm";
  DecoderConfig config = read_llama_fields(reader, family);
  config.norms_whole_heads = true;
  read_attention_bias(reader, config);
  read_windows(reader, config, 4096, [](std::int64_t block) { return (block + 1) % 4 != 0; });
  RotaryDefaults rotary;
  rotary.theta = 5e5;
  config.rotary = read_rotary(reader, config, rotary, "full_attention");
  rotary.theta_field.clear();  // the library's old spelling is of the other blocks only
  config.window_rotary = read_rotary(reader, config, rotary, "sliding_attention");
  return config;
}

}  // namespace

Family olmo3_family() { return decoder_family("olmo3", read_olmo3, llama_file_names()); }

}  // namespace strait::models

#include "models/config_fields.h"
#include "models/decoder.h"

namespace strait::models {
namespace {

// Gemma 2 with norms over the heads of queries and keys, and with separate angles in windowed
// layers, which are all except every sixth.
DecoderConfig read_gemma3(const ConfigReader& reader) {
  DecoderConfig family;
  family.vocabulary = 262208;
  family.positions = 131072;
  family.names.query_norm = "self_attn.q_norm";
  family.names.key_norm = "self_attn.k_norm";
  DecoderConfig config = read_gemma_fields(reader, family);
  if (read_softcap(reader, "attn_logit_softcapping", 0) != 0) {
    reader.refuse("attn_logit_softcapping", "null: this family does not cap its scores");
  }
  config.final_softcap = read_softcap(reader, "final_logit_softcapping", 0);
  const std::int64_t pattern = reader.integer("sliding_window_pattern", 6, 1, kLargestSize);
  read_windows(reader, config, 4096,
               [pattern](std::int64_t block) { return (block + 1) % pattern != 0; });
  RotaryDefaults all;
  all.theta = 1e6;
  config.rotary = read_rotary(reader, config, all, "full_attention");
  RotaryDefaults windowed;
  windowed.theta_field = "rope_local_base_freq";
  config.window_rotary = read_rotary(reader, config, windowed, "sliding_attention");
  return config;
}

}  // namespace

Family gemma3_family() { return decoder_family("gemma3_text", read_gemma3, llama_file_names()); }

}  // namespace strait::models

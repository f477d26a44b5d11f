#include "models/config_fields.h"
#include "models/decoder.h"

namespace strait::models {
namespace {

// Llama with a norm over every head of queries and keys before the rotation. Heads have 128 values
// whatever the hidden width.
DecoderConfig read_qwen3(const ConfigReader& reader) {
  DecoderConfig family;
  family.vocabulary = 151936;
  family.positions = 32768;
  family.hidden = 4096;
  family.blocks = 32;
  family.heads = 32;
  family.key_heads = 32;
  family.head_width = 128;
  family.inner = 22016;
  family.norm = {NormKind::rms, 1e-6};
  DecoderConfig config = read_llama_fields(reader, family);
  config.names.query_norm = "self_attn.q_norm";
  config.names.key_norm = "self_attn.k_norm";
  read_attention_bias(reader, config);
  read_qwen_window(reader, config);
  config.rotary = read_rotary(reader, config, {});
  return config;
}

}  // namespace

Family qwen3_family() { return decoder_family("qwen3", read_qwen3, llama_file_names()); }

}  // namespace strait::models

#include "models/config_fields.h"
#include "models/decoder.h"

namespace strait::models {
namespace {

// Llama with fused matrices: queries, keys and values in one, gate and up in another.
DecoderConfig read_phi3(const ConfigReader& reader) {
  DecoderConfig family;
  family.vocabulary = 32064;
  family.positions = 4096;
  family.hidden = 3072;
  family.blocks = 32;
  family.heads = 32;
  family.inner = 8192;
  family.padding_token = 32000;
  family.norm = {NormKind::rms, 1e-5};
  DecoderConfig config = read_llama_fields(reader, family);
  config.names.query_key_value = "self_attn.qkv_proj";
  config.names.gate_up = "mlp.gate_up_proj";
  config.query_key_value = QueryKeyValue::fused;
  config.residual_dropout = reader.number("resid_pdrop", 0, 0, 1);
  read_window(reader, config, 0);
  RotaryDefaults rotary;
  rotary.share_field = "partial_rotary_factor";
  rotary.longrope_original = 4096;
  config.rotary = read_rotary(reader, config, rotary);
  return config;
}

}  // namespace

Family phi3_family() { return decoder_family("phi3", read_phi3, llama_file_names()); }

}  // namespace strait::models

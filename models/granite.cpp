#include "models/config_fields.h"
#include "models/decoder.h"

namespace strait::models {
namespace {

// Llama with four factors: of the embedding, of the scores, of what is added to the residual, and
// the divisor of the logits.
DecoderConfig read_granite(const ConfigReader& reader) {
  DecoderConfig family;
  family.vocabulary = 32000;
  family.positions = 2048;
  family.hidden = 4096;
  family.blocks = 32;
  family.heads = 32;
  family.inner = 11008;
  family.norm = {NormKind::rms, 1e-6};
  DecoderConfig config = read_llama_fields(reader, family);
  const auto factor = [&](const char* field) { return reader.number(field, 1, 1e-9, 1e9); };
  config.embedding_scale = factor("embedding_multiplier");
  config.attention_scale = factor("attention_multiplier");
  config.residual_scale = factor("residual_multiplier");
  config.final_scale = 1 / factor("logits_scaling");
  config.activation = read_activation(reader, "hidden_act", "silu");
  config.query_key_value_bias = reader.boolean("attention_bias", false);
  config.attention_output_bias = config.query_key_value_bias;
  config.mlp_bias = reader.boolean("mlp_bias", false);
  config.rotary = read_rotary(reader, config, {});
  return config;
}

}  // namespace

Family granite_family() { return decoder_family("granite", read_granite, llama_file_names()); }

}  // namespace strait::models

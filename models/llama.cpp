#include "models/config_fields.h"
#include "models/decoder.h"

namespace strait::models {
namespace {

// Llama 2 and 3.x. One field turns the biases of all four attention matrices on or off.
DecoderConfig read_llama(const ConfigReader& reader) {
  DecoderConfig family;
  family.vocabulary = 32000;
  family.positions = 2048;
  family.hidden = 4096;
  family.blocks = 32;
  family.heads = 32;
  family.inner = 11008;
  family.norm = {NormKind::rms, 1e-6};
  DecoderConfig config = read_llama_fields(reader, family);
  read_attention_bias(reader, config);
  config.mlp_bias = reader.boolean("mlp_bias", false);
  config.rotary = read_rotary(reader, config, {});
  return config;
}

// Llama with four factors: of the embedding, of the scores, of what is added to the residual, and
// the divisor of the logits.
DecoderConfig read_granite(const ConfigReader& reader) {
  DecoderConfig config = read_llama(reader);
  const auto factor = [&](const char* field) { return reader.number(field, 1, 1e-9, 1e9); };
  config.embedding_scale = factor("embedding_multiplier");
  config.attention_scale = factor("attention_multiplier");
  config.residual_scale = factor("residual_multiplier");
  config.final_scale = 1 / factor("logits_scaling");
  return config;
}

}  // namespace

Family llama_family() { return decoder_family("llama", read_llama, llama_file_names()); }

Family granite_family() { return decoder_family("granite", read_granite, llama_file_names()); }

}  // namespace strait::models

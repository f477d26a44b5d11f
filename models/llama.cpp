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
  config.activation = read_activation(reader, "hidden_act", "silu");
  config.query_key_value_bias = reader.boolean("attention_bias", false);
  config.attention_output_bias = config.query_key_value_bias;
  config.mlp_bias = reader.boolean("mlp_bias", false);
  config.rotary = read_rotary(reader, config, {});
  return config;
}

}  // namespace

Family llama_family() { return decoder_family("llama", read_llama, llama_file_names()); }

}  // namespace strait::models

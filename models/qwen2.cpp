#include "models/config_fields.h"
#include "models/decoder.h"

namespace strait::models {
namespace {

// Llama with biases on queries, keys and values, which no field turns off. Files of the hub contain
// a window that is off unless use_sliding_window turns it on.
DecoderConfig read_qwen2(const ConfigReader& reader) {
  DecoderConfig family;
  family.vocabulary = 151936;
  family.positions = 32768;
  family.hidden = 4096;
  family.blocks = 32;
  family.heads = 32;
  family.key_heads = 32;
  family.inner = 22016;
  family.norm = {NormKind::rms, 1e-6};
  DecoderConfig config = read_llama_fields(reader, family);
  config.query_key_value_bias = true;
  read_qwen_window(reader, config);
  config.rotary = read_rotary(reader, config, {});
  return config;
}

}  // namespace

Family qwen2_family() { return decoder_family("qwen2", read_qwen2, llama_file_names()); }

}  // namespace strait::models

#include "models/config_fields.h"
#include "models/decoder.h"

namespace strait::models {
namespace {

// Llama with blocks that do not rotate queries and keys: every fourth, or those with a 0 in
// no_rope_layers. If windows are on, these have them.
DecoderConfig read_smollm3(const ConfigReader& reader) {
  DecoderConfig family;
  family.vocabulary = 128256;
  family.positions = 32768;
  family.hidden = 2048;
  family.blocks = 36;
  family.heads = 16;
  family.key_heads = 4;
  family.inner = 11008;
  family.tied = true;
  family.padding_token = 128004;
  family.norm = {NormKind::rms, 1e-6};
  DecoderConfig config = read_llama_fields(reader, family);
  read_attention_bias(reader, config);
  config.mlp_bias = reader.boolean("mlp_bias", false);
  const auto rotated = reader.numbers("no_rope_layers");
  if (rotated && std::cmp_less(rotated->size(), config.blocks)) {
    reader.refuse("no_rope_layers", "a number for each layer");
  }
  const std::int64_t every = reader.integer("no_rope_layer_interval", 4, 1, kLargestSize);
  for (std::int64_t block = 0; block < config.blocks; ++block) {
    config.unrotated.push_back(rotated ? (*rotated)[static_cast<std::size_t>(block)] == 0
                                       : (block + 1) % every == 0);
  }
  // layer_types counts without the switch, too, as the library's masks have it.
  const bool windows = reader.boolean("use_sliding_window", false);
  if (windows || reader.has("layer_types")) {
    read_windows(reader, config, 0,
                 [&](std::int64_t block) { return config.block_unrotated(block); });
  }
  RotaryDefaults rotary;
  rotary.theta = 2e6;
  config.rotary = read_rotary(reader, config, rotary);
  return config;
}

}  // namespace

Family smollm3_family() { return decoder_family("smollm3", read_smollm3, llama_file_names()); }

}  // namespace strait::models

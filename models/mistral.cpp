#include "models/config_fields.h"
#include "models/decoder.h"

namespace strait::models {
namespace {

// Llama with a sliding window in every layer: 4096 if the field is absent, none if it is null.
DecoderConfig read_mistral(const ConfigReader& reader) {
  DecoderConfig family;
  family.vocabulary = 32000;
  family.positions = 131072;
  family.hidden = 4096;
  family.blocks = 32;
  family.heads = 32;
  family.key_heads = 8;
  family.inner = 14336;
  family.norm = {NormKind::rms, 1e-6};
  DecoderConfig config = read_llama_fields(reader, family);
  read_windows(reader, config, 4096, [](std::int64_t) { return true; });
  config.rotary = read_rotary(reader, config, {});
  return config;
}

}  // namespace

Family mistral_family() { return decoder_family("mistral", read_mistral, llama_file_names()); }

}  // namespace strait::models

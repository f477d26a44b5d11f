#include "models/config_fields.h"
#include "models/decoder.h"

namespace strait::models {
namespace {

// Mistral with queries that grow with their position, in steps of the original context. There is a
// window only where sliding_window is given.
DecoderConfig read_ministral3(const ConfigReader& reader) {
  DecoderConfig family;
  family.vocabulary = 131072;
  family.positions = 262144;
  family.hidden = 4096;
  family.blocks = 34;
  family.heads = 32;
  family.key_heads = 8;
  family.head_width = 128;
  family.inner = 14336;
  family.padding_token = 11;
  family.norm = {NormKind::rms, 1e-5};
  DecoderConfig config = read_llama_fields(reader, family);
  read_window(reader, config, 0);
  read_query_growth(reader, config);
  config.rotary = read_rotary(reader, config, {});
  return config;
}

}  // namespace

Family ministral3_family() {
  return decoder_family("ministral3", read_ministral3, llama_file_names());
}

}  // namespace strait::models

#include "models/config_fields.h"
#include "models/decoder.h"

namespace strait::models {
namespace {

DecoderConfig read_gemma2(const ConfigReader& reader) {
  DecoderConfig family;
  family.vocabulary = 256000;
  family.positions = 8192;
  DecoderConfig config = read_gemma_fields(reader, family);
  config.attention_softcap = read_softcap(reader, "attn_logit_softcapping", 50);
  config.final_softcap = read_softcap(reader, "final_logit_softcapping", 30);
  read_windows(reader, config, 4096, [](std::int64_t block) { return block % 2 == 0; });
  config.rotary = read_rotary(reader, config, {});
  return config;
}

}  // namespace

Family gemma2_family() { return decoder_family("gemma2", read_gemma2, llama_file_names()); }

}  // namespace strait::models

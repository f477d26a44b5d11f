#include <any>

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
  read_window(reader, config, 4096);
  config.rotary = read_rotary(reader, config, {});
  return config;
}

// The text part of a model of text and images, which has one of three types.
DecoderConfig read_mistral3(const ConfigReader& reader) {
  const ConfigReader text = reader.object("text_config");
  const std::string type = text.string("model_type", "mistral");
  for (const Family& family : {mistral_family(), ministral3_family(), mistral4_family()}) {
    if (family.name != type) continue;
    auto config = std::any_cast<DecoderConfig>(family.read(text));
    // Without it the files are of version 4 of transformers, to which text_config's counted.
    config.tied = reader.boolean("tie_word_embeddings", config.tied);
    return config;
  }
  text.refuse("model_type", "one of mistral, ministral3, mistral4");
}

}  // namespace

Family mistral_family() { return decoder_family("mistral", read_mistral, llama_file_names()); }

Family mistral3_family() {
  FileNames names = llama_file_names();
  names.inside = {{"model.language_model.", "model."}, {"language_model.", ""}};
  names.carried = {"vision_tower.", "multi_modal_projector.", "model.vision_tower.",
                   "model.multi_modal_projector."};
  names.module = "model.language_model.";
  names.joins_experts = true;
  return decoder_family("mistral3", read_mistral3, std::move(names));
}

}  // namespace strait::models

#include "models/config_fields.h"
#include "models/decoder.h"

namespace strait::models {
namespace {

// Layers with the state of a DeltaNet in place of attention: all but every
// full_attention_interval-th, or as layer_types says.
void read_recurrent_blocks(const ConfigReader& reader, DecoderConfig& config) {
  const auto size = [&](const char* field, std::int64_t absent) {
    return reader.integer(field, absent, 1, 1 << 16);
  };
  DeltaOptions& options = config.recurrent;
  options.taps = size("linear_conv_kernel_dim", 4);
  options.key_width = size("linear_key_head_dim", 128);
  options.width = size("linear_value_head_dim", 128);
  options.key_heads = size("linear_num_key_heads", 16);
  options.heads = size("linear_num_value_heads", 32);
  if (options.heads % options.key_heads != 0) {
    reader.refuse("linear_num_value_heads", "a multiple of linear_num_key_heads");
  }
  const std::int64_t interval = size("full_attention_interval", 4);
  config.recurrent_blocks =
      read_layer_types(reader, config, "linear_attention",
                       [&](std::int64_t block) { return (block + 1) % interval != 0; });
}

// Attention has a gate of its result and rotates a part of each head; all norms but the DeltaNet's
// multiply by 1 + w.
DecoderConfig read_fields(const ConfigReader& reader, DecoderConfig family) {
  family.vocabulary = 248320;
  family.positions = 32768;
  family.heads = 16;
  family.head_width = 256;
  family.norm = {NormKind::rms_one_plus, 1e-6};
  DecoderConfig config = read_llama_fields(reader, family);
  config.names.query_norm = "self_attn.q_norm";
  config.names.key_norm = "self_attn.k_norm";
  config.output_gate = true;
  if (config.activation != Activation::silu) {
    reader.refuse("hidden_act", "\"silu\", which the recurrent layers have");
  }
  read_attention_bias(reader, config);
  read_recurrent_blocks(reader, config);
  RotaryDefaults rotary;
  rotary.share_field = "partial_rotary_factor";
  rotary.share = 0.25;
  config.rotary = read_rotary(reader, config, rotary);
  return config;
}

DecoderConfig read_qwen3_5(const ConfigReader& reader) {
  DecoderConfig family;
  family.hidden = 4096;
  family.blocks = 32;
  family.key_heads = 4;
  family.inner = 12288;
  return read_fields(reader, family);
}

DecoderConfig read_qwen3_5_moe(const ConfigReader& reader) {
  DecoderConfig family;
  family.hidden = 2048;
  family.blocks = 40;
  family.key_heads = 2;
  family.inner = 1;  // no block has an MLP
  DecoderConfig config = read_fields(reader, family);
  ExpertOptions experts;
  experts.count = 256;
  experts.per_token = 8;
  experts.inner = 512;
  experts.balance = 0.001;
  config.experts = read_experts(reader, "num_experts", "moe_intermediate_size", experts);
  config.experts.shared_inner =
      reader.integer("shared_expert_intermediate_size", 512, 1, kLargestSize);
  config.experts.normalise = true;
  set_sparse(config, [](std::int64_t) { return true; });
  return config;
}

// The text part of a model of text and images.
template <DecoderConfig (*read)(const ConfigReader& reader)>
DecoderConfig read_text_part(const ConfigReader& reader) {
  DecoderConfig config = read(reader.object("text_config"));
  if (reader.boolean("tie_word_embeddings", config.tied) != config.tied) {
    reader.refuse("tie_word_embeddings", "as in text_config");
  }
  return config;
}

FileNames with_experts(FileNames names) {
  names.peft_experts = PeftExperts::by_parameters;
  return names;
}

FileNames names_of_text() {
  FileNames names = llama_file_names();
  names.carried = {"model.visual.", "mtp."};  // vision, and a head that predicts more tokens
  return names;
}

FileNames names_of_text_part() {
  FileNames names = names_of_text();
  names.inside = {{"model.language_model.", "model."}};
  names.module = "model.language_model.";
  return names;
}

}  // namespace

Family qwen3_5_text_family() {
  return decoder_family("qwen3_5_text", read_qwen3_5, names_of_text());
}

Family qwen3_5_moe_text_family() {
  return decoder_family("qwen3_5_moe_text", read_qwen3_5_moe, with_experts(names_of_text()));
}

Family qwen3_5_family() {
  return decoder_family("qwen3_5", read_text_part<read_qwen3_5>, names_of_text_part());
}

Family qwen3_5_moe_family() {
  return decoder_family("qwen3_5_moe", read_text_part<read_qwen3_5_moe>,
                        with_experts(names_of_text_part()));
}

}  // namespace strait::models

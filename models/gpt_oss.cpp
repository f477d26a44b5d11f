#include "models/config_fields.h"
#include "models/decoder.h"

namespace strait::models {
namespace {

// Experts with a clamped gate in every block. Each head has a sink, every second block a window,
// and all matrices have biases.
DecoderConfig read_gpt_oss(const ConfigReader& reader) {
  DecoderConfig family;
  family.vocabulary = 201088;
  family.positions = 131072;
  family.hidden = 2880;
  family.blocks = 36;
  family.heads = 64;
  family.key_heads = 8;
  family.head_width = 64;
  family.inner = 2880;
  family.norm = {NormKind::rms, 1e-5};
  family.names.sinks = "self_attn.sinks";
  family.names.router = "mlp.router";
  family.names.expert_gate_up = "gate_up_proj";
  DecoderConfig config = read_llama_fields(reader, family);
  if (config.activation != Activation::silu) {
    reader.refuse("hidden_act", "\"silu\"");
  }
  read_attention_bias(reader, config, true);
  config.mlp_bias = true;
  read_windows(reader, config, 128, [](std::int64_t block) { return block % 2 == 0; });
  ExpertOptions experts;
  experts.count = 128;
  experts.per_token = 4;
  experts.inner = config.inner;
  experts.balance = 0.001;
  config.experts = read_experts(reader, "num_local_experts", "intermediate_size", experts);
  // The same as a softmax over the logits of the chosen experts only.
  config.experts.normalise = true;
  config.experts.router_bias = true;
  config.experts.joined = true;
  config.experts.input_first = true;
  config.experts.clamped.slope = reader.number("swiglu_alpha", 1.702, 1e-6, 1e6);
  config.experts.clamped.limit = reader.number("swiglu_limit", 7, 1e-6, 1e6);
  set_sparse(config, [](std::int64_t) { return true; });
  if (!reader.has("rope_parameters") && !reader.has("rope_scaling")) {
    reader.refuse("rope_parameters", "an object: the files of this family have it");
  }
  RotaryDefaults rotary;
  rotary.theta = 150000;
  config.rotary = read_rotary(reader, config, rotary);
  return config;
}

}  // namespace

Family gpt_oss_family() {
  FileNames names = llama_file_names();
  names.joins_experts = true;
  names.reads_mxfp4 = true;
  Family family = decoder_family("gpt_oss", read_gpt_oss, std::move(names));
  family.experts_input_first = true;
  return family;
}

}  // namespace strait::models

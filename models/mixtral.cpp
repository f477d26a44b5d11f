#include "models/config_fields.h"
#include "models/decoder.h"

namespace strait::models {
namespace {

// Mistral with experts in every block; their weights add up to one. There is a window only where
// sliding_window is given.
DecoderConfig read_mixtral(const ConfigReader& reader) {
  DecoderConfig family;
  family.vocabulary = 32000;
  family.positions = 131072;
  family.hidden = 4096;
  family.blocks = 32;
  family.heads = 32;
  family.key_heads = 8;
  family.inner = 14336;
  family.norm = {NormKind::rms, 1e-5};
  family.names.router = "block_sparse_moe.gate";
  family.names.experts = "block_sparse_moe.experts.";
  family.names.expert_gate = "w1";
  family.names.expert_up = "w3";
  family.names.expert_down = "w2";
  DecoderConfig config = read_llama_fields(reader, family);
  read_window(reader, config, 0);
  if (reader.number("router_jitter_noise", 0, 0, 1) != 0) {
    reader.refuse("router_jitter_noise", "0: noise on the router's input is not built");
  }
  ExpertOptions experts;
  experts.count = 8;
  experts.per_token = 2;
  experts.inner = config.inner;
  experts.balance = 0.001;
  config.experts = read_experts(reader, "num_local_experts", "intermediate_size", experts);
  config.experts.normalise = true;
  set_sparse(config, [](std::int64_t) { return true; });
  RotaryDefaults rotary;
  rotary.theta = 1e6;
  config.rotary = read_rotary(reader, config, rotary);
  return config;
}

}  // namespace

Family mixtral_family() {
  FileNames names = llama_file_names();
  names.renamed = {"block_sparse_moe.gate", "mlp.gate"};
  names.peft_experts = PeftExperts::by_last_parts;
  names.expert_parts = {"w1", "w3", "w2"};
  return decoder_family("mixtral", read_mixtral, std::move(names));
}

}  // namespace strait::models

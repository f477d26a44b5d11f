#include "models/config_fields.h"
#include "models/decoder.h"

namespace strait::models {
namespace {

// Llama with experts in every block, and with norms over all queries and all keys of a token.
DecoderConfig read_olmoe(const ConfigReader& reader) {
  DecoderConfig family;
  family.vocabulary = 50304;
  family.positions = 4096;
  family.hidden = 2048;
  family.blocks = 16;
  family.heads = 16;
  family.inner = 2048;
  family.padding_token = 1;
  family.norm = {NormKind::rms, 1e-5};
  family.names.query_norm = "self_attn.q_norm";
  family.names.key_norm = "self_attn.k_norm";
  DecoderConfig config = read_llama_fields(reader, family);
  config.norms_whole_heads = true;
  read_attention_bias(reader, config);
  if (reader.has("clip_qkv")) {
    config.query_key_value_limit = reader.number("clip_qkv", 0, 1e-6, 1e9);
  }
  ExpertOptions experts;
  experts.count = 64;
  experts.per_token = 8;
  experts.inner = config.inner;
  experts.balance = 0.01;
  config.experts = read_experts(reader, "num_experts", "intermediate_size", experts);
  config.experts.normalise = reader.boolean("norm_topk_prob", false);
  set_sparse(config, [](std::int64_t) { return true; });
  config.rotary = read_rotary(reader, config, {});
  return config;
}

}  // namespace

Family olmoe_family() {
  FileNames names = llama_file_names();
  names.peft_experts = PeftExperts::by_last_parts;
  return decoder_family("olmoe", read_olmoe, std::move(names));
}

}  // namespace strait::models

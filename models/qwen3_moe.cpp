#include <algorithm>

#include "models/config_fields.h"
#include "models/decoder.h"

namespace strait::models {
namespace {

// Qwen 3 with experts in place of MLPs, in every block or in every decoder_sparse_step-th one,
// except those that mlp_only_layers names.
DecoderConfig read_qwen3_moe(const ConfigReader& reader) {
  DecoderConfig family;
  family.vocabulary = 151936;
  family.positions = 32768;
  family.hidden = 2048;
  family.blocks = 24;
  family.heads = 32;
  family.key_heads = 4;
  family.inner = 6144;
  family.norm = {NormKind::rms, 1e-6};
  DecoderConfig config = read_llama_fields(reader, family);
  config.names.query_norm = "self_attn.q_norm";
  config.names.key_norm = "self_attn.k_norm";
  read_attention_bias(reader, config);
  if (reader.boolean("use_sliding_window", false)) read_window(reader, config, 4096);
  ExpertOptions experts;
  experts.count = 128;
  experts.per_token = 8;
  experts.inner = 768;
  experts.balance = 0.001;
  config.experts = read_experts(reader, "num_experts", "moe_intermediate_size", experts);
  config.experts.normalise = reader.boolean("norm_topk_prob", false);
  const std::int64_t step = reader.integer("decoder_sparse_step", 1, 1, kLargestSize);
  const auto dense = reader.numbers("mlp_only_layers").value_or(std::vector<double>{});
  set_sparse(config, [&](std::int64_t block) {
    const bool is_dense = std::ranges::count(dense, static_cast<double>(block)) > 0;
    return !is_dense && (block + 1) % step == 0;
  });
  config.rotary = read_rotary(reader, config, {});
  return config;
}

}  // namespace

Family qwen3_moe_family() {
  FileNames names = llama_file_names();
  names.peft_experts = PeftExperts::by_last_parts;
  return decoder_family("qwen3_moe", read_qwen3_moe, std::move(names));
}

}  // namespace strait::models

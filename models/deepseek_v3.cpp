#include <fmt/format.h>

#include <cmath>

#include "models/config_fields.h"
#include "models/decoder.h"

namespace strait::models {
namespace {

void read_latent(const ConfigReader& reader, DecoderConfig& config) {
  LatentOptions& latent = config.latent;
  const auto size = [&](const char* field, std::int64_t& value) {
    value = reader.integer(field, value, 1, 1 << 16);
  };
  if (reader.is_null("q_lora_rank")) {
    latent.query_rank = 0;
  } else {
    size("q_lora_rank", latent.query_rank);
  }
  size("kv_lora_rank", latent.rank);
  size("qk_nope_head_dim", latent.plain_width);
  size("qk_rope_head_dim", latent.rotated_width);
  size("v_head_dim", latent.value_width);
  config.names.query_norm = "self_attn.q_a_layernorm";
  config.names.key_norm = "self_attn.kv_a_layernorm";
  config.attention_scale =
      yarn_score_factor(reader) / std::sqrt(static_cast<double>(latent.key_width()));
}

// Unless the field turns it off; null is off to the library.
bool is_on(const ConfigReader& reader, const char* field) {
  return !reader.is_null(field) && reader.boolean(field, true);
}

// `share`: the angles are those of a share of the head, and not of the part that is rotated.
void read_latent_rotary(const ConfigReader& reader, DecoderConfig& config, bool share) {
  const LatentOptions& latent = config.latent;
  RotaryDefaults defaults;
  if (share) {
    defaults.share_field = "partial_rotary_factor";
    defaults.share =
        static_cast<double>(latent.rotated_width) / static_cast<double>(latent.key_width());
  }
  config.head_width = share ? latent.key_width() : latent.rotated_width;
  const std::shared_ptr<const Rotary> read = read_rotary(reader, config, defaults);
  config.head_width = latent.key_width();
  if (read == nullptr || 2 * std::ssize(read->frequencies) != latent.rotated_width) {
    reader.refuse("qk_rope_head_dim", "the number of rotated values in a head");
  }
  auto rotary = std::make_shared<Rotary>(*read);
  if (is_on(reader, "rope_interleave")) rotary->pairs = kernels::RotaryPairs::neighbours;
  config.rotary = std::move(rotary);
}

void read_latent_experts(const ConfigReader& reader, DecoderConfig& config) {
  ExpertOptions experts =
      read_experts(reader, "n_routed_experts", "moe_intermediate_size", config.experts);
  experts.groups = reader.integer("n_group", experts.groups, 1, experts.count);
  experts.groups_per_token =
      reader.integer("topk_group", experts.groups_per_token, 1, experts.groups);
  const std::int64_t in_group = experts.count / experts.groups;
  if (experts.count % experts.groups != 0 || (experts.groups > 1 && in_group < 2)) {
    reader.refuse("n_group", fmt::format("a divisor of the number of experts ({}) that leaves two "
                                         "or more of them in a group",
                                         experts.count));
  }
  if (experts.per_token > experts.groups_per_token * in_group) {
    reader.refuse("num_experts_per_tok", fmt::format("at most the {} experts of topk_group groups",
                                                     experts.groups_per_token * in_group));
  }
  experts.normalise = is_on(reader, "norm_topk_prob");
  experts.scale = reader.number("routed_scaling_factor", experts.scale, 1e-9, 1e9);
  experts.shared_inner = experts.inner * reader.integer("n_shared_experts", 1, 1, 1 << 10);
  experts.balance = 0;  // the library has no such loss for these families
  config.experts = experts;
  config.names.shared_expert = "mlp.shared_experts.";
  config.names.shared_expert_gate.clear();
}

// Latent attention in every block, and experts in most: a router chooses groups of experts first,
// and every token goes to a shared expert without a gate, too. `family` holds the values of absent
// fields.
DecoderConfig read_latent_fields(const ConfigReader& reader, DecoderConfig family) {
  family.head_width = 1;  // has no field of its own; see read_latent_rotary()
  DecoderConfig config = read_llama_fields(reader, std::move(family));
  if (config.key_heads != config.heads) {
    reader.refuse("num_key_value_heads",
                  fmt::format("as many as num_attention_heads ({})", config.heads));
  }
  read_attention_bias(reader, config);
  read_latent(reader, config);
  read_latent_experts(reader, config);
  return config;
}

// Those after the last block, and the one that transformers ignores in files of any depth.
void read_prediction_blocks(const ConfigReader& reader, DecoderConfig& config,
                            std::int64_t ignored) {
  const std::int64_t count = reader.integer("num_nextn_predict_layers", 1, 0, 64);
  for (std::int64_t i = 0; i < count; ++i) config.prediction_blocks.push_back(config.blocks + i);
  if (ignored >= config.blocks) config.prediction_blocks.push_back(ignored);
}

// Sigmoid scores in float32, with a bias that takes part in the choice only.
ExpertOptions sigmoid_experts() {
  ExpertOptions experts;
  experts.sigmoid = true;
  experts.choice_bias = true;
  experts.wide_router = true;
  return experts;
}

DecoderConfig read_deepseek_v3(const ConfigReader& reader) {
  DecoderConfig family;
  family.vocabulary = 129280;
  family.positions = 4096;
  family.hidden = 7168;
  family.blocks = 61;
  family.heads = 128;
  family.inner = 18432;
  family.norm = {NormKind::rms, 1e-6};
  family.latent = {1536, 512, 128, 64, 128};
  family.experts = sigmoid_experts();
  family.experts.count = 256;
  family.experts.per_token = 8;
  family.experts.inner = 2048;
  family.experts.groups = 8;
  family.experts.groups_per_token = 4;
  family.experts.scale = 2.5;
  DecoderConfig config = read_latent_fields(reader, family);
  // Files have these fields; the library computes with these values of them.
  if (reader.string("scoring_func", "sigmoid") != "sigmoid") {
    reader.refuse("scoring_func", "\"sigmoid\"");
  }
  if (reader.string("topk_method", "noaux_tc") != "noaux_tc") {
    reader.refuse("topk_method", "\"noaux_tc\"");
  }
  reader.integer("moe_layer_freq", 1, 1, 1);
  read_latent_rotary(reader, config, false);
  read_prediction_blocks(reader, config, 61);
  const std::int64_t first = reader.integer("first_k_dense_replace", 3, 0, kLargestSize);
  set_sparse(config, [&](std::int64_t block) { return block >= first; });
  return config;
}

DecoderConfig read_glm4_moe_lite(const ConfigReader& reader) {
  DecoderConfig family;
  family.vocabulary = 154880;
  family.positions = 202752;
  family.hidden = 2048;
  family.blocks = 47;
  family.heads = 20;
  family.inner = 10240;
  family.norm = {NormKind::rms, 1e-5};
  family.latent = {768, 512, 192, 64, 256};
  family.experts = sigmoid_experts();
  family.experts.count = 64;
  family.experts.per_token = 4;
  family.experts.inner = 1536;
  family.experts.scale = 1.8;
  DecoderConfig config = read_latent_fields(reader, family);
  read_latent_rotary(reader, config, false);
  read_prediction_blocks(reader, config, 47);
  if (reader.number("partial_rotary_factor", 1, 0, 1) != 1) {
    reader.refuse("partial_rotary_factor", "1: qk_rope_head_dim is the rotated part of a head");
  }
  const auto types = reader.strings("mlp_layer_types");
  if (types && std::cmp_not_equal(types->size(), config.blocks)) {
    reader.refuse("mlp_layer_types", fmt::format("{} of them, one for each layer", config.blocks));
  }
  set_sparse(config, [&](std::int64_t block) {
    if (!types) return block > 0;
    const std::string& type = (*types)[static_cast<std::size_t>(block)];
    if (type != "sparse" && type != "dense") {
      reader.refuse("mlp_layer_types", "dense or sparse for each layer");
    }
    return type == "sparse";
  });
  return config;
}

// Softmax scores, and queries that grow with their position.
DecoderConfig read_mistral4(const ConfigReader& reader) {
  DecoderConfig family;
  family.vocabulary = 131072;
  family.positions = 1048576;
  family.hidden = 4096;
  family.blocks = 36;
  family.heads = 32;
  family.inner = 12288;
  family.padding_token = 11;
  family.norm = {NormKind::rms, 1e-6};
  family.latent = {1024, 256, 64, 64, 128};
  family.experts.count = 128;
  family.experts.per_token = 4;
  family.experts.inner = 2048;
  family.experts.joined = true;
  family.names.expert_gate_up = "gate_up_proj";
  DecoderConfig config = read_latent_fields(reader, family);
  read_query_growth(reader, config);
  read_latent_rotary(reader, config, true);
  const std::int64_t first = reader.integer("first_k_dense_replace", 0, 0, kLargestSize);
  set_sparse(config, [&](std::int64_t block) { return block >= first; });
  return config;
}

FileNames names_with_experts() {
  FileNames names = llama_file_names();
  names.peft_experts = PeftExperts::by_last_parts;
  return names;
}

}  // namespace

Family deepseek_v3_family() {
  return decoder_family("deepseek_v3", read_deepseek_v3, names_with_experts());
}

Family glm4_moe_lite_family() {
  return decoder_family("glm4_moe_lite", read_glm4_moe_lite, names_with_experts());
}

Family mistral4_family() {
  FileNames names = llama_file_names();
  names.joins_experts = true;
  return decoder_family("mistral4", read_mistral4, std::move(names));
}

}  // namespace strait::models

#include "models/config_fields.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

namespace strait::models {

std::int64_t read_size(const ConfigReader& reader, const std::string& field,
                       const std::string& other, std::int64_t absent) {
  const auto value = [&](const std::string& name) {
    return reader.integer(name, absent, 1, kLargestSize);
  };
  if (!reader.has(field)) return value(other);
  // The weights could follow either field.
  if (reader.has(other) && value(field) != value(other)) {
    reader.refuse(other, fmt::format("{}, as {} is", value(field), field));
  }
  return value(field);
}

Activation read_activation(const ConfigReader& reader, const std::string& field,
                           const std::string& absent) {
  const auto known = activation_named(reader.string(field, absent));
  if (!known) reader.refuse(field, fmt::format("one of {}", fmt::join(activation_names(), ", ")));
  return *known;
}

std::int64_t read_padding_token(const ConfigReader& reader, std::int64_t vocabulary,
                                std::int64_t absent) {
  if (reader.is_null("pad_token_id")) return -1;
  if (!reader.has("pad_token_id") && absent < 0) return -1;
  const std::int64_t token =
      reader.integer("pad_token_id", std::min(absent, vocabulary - 1), -vocabulary, vocabulary - 1);
  return token < 0 ? token + vocabulary : token;  // counted from the end, as the library does
}

double read_softcap(const ConfigReader& reader, const std::string& field, double absent) {
  return reader.is_null(field) ? 0 : reader.number(field, absent, 1e-3, 1e6);
}

std::int64_t divided_width(const ConfigReader& reader, const std::string& heads_field,
                           std::int64_t hidden, std::int64_t heads) {
  if (hidden % heads != 0) {
    reader.refuse(heads_field, fmt::format("a divisor of the hidden width {}", hidden));
  }
  return hidden / heads;
}

// ---- llama and its descendants ------------------------------------------------------------------

DecoderConfig read_llama_fields(const ConfigReader& reader, DecoderConfig family) {
  DecoderConfig config = std::move(family);
  const auto size = [&](const std::string& field, std::int64_t& value) {
    value = reader.integer(field, value, 1, kLargestSize);
  };
  size("vocab_size", config.vocabulary);
  size("max_position_embeddings", config.positions);
  size("hidden_size", config.hidden);
  size("num_hidden_layers", config.blocks);
  size("num_attention_heads", config.heads);
  size("intermediate_size", config.inner);
  const bool as_heads = config.key_heads == 0 || reader.is_null("num_key_value_heads");
  config.key_heads = reader.integer("num_key_value_heads",
                                    as_heads ? config.heads : config.key_heads, 1, kLargestSize);
  if (config.heads % config.key_heads != 0) {
    reader.refuse("num_key_value_heads",
                  fmt::format("a divisor of num_attention_heads ({})", config.heads));
  }
  if (reader.has("head_dim") || (config.head_width > 0 && !reader.is_null("head_dim"))) {
    size("head_dim", config.head_width);
  } else {
    config.head_width = divided_width(reader, "num_attention_heads", config.hidden, config.heads);
  }
  config.attention_scale = 1 / std::sqrt(static_cast<double>(config.head_width));
  config.norm.epsilon = reader.number("rms_norm_eps", config.norm.epsilon, 0, 1);
  config.initializer_range = reader.number("initializer_range", config.initializer_range, 0, 100);
  config.tied = reader.boolean("tie_word_embeddings", config.tied);
  config.activation = read_activation(reader, "hidden_act", "silu");
  config.attention_dropout = reader.number("attention_dropout", 0, 0, 1);
  config.padding_token = read_padding_token(reader, config.vocabulary, config.padding_token);
  return config;
}

void read_attention_bias(const ConfigReader& reader, DecoderConfig& config, bool absent) {
  config.query_key_value_bias = reader.boolean("attention_bias", absent);
  config.attention_output_bias = config.query_key_value_bias;
}

DecoderConfig read_gpt2_fields(const ConfigReader& reader, DecoderConfig family) {
  DecoderConfig config = std::move(family);
  config.vocabulary = reader.integer("vocab_size", config.vocabulary, 1, kLargestSize);
  config.positions = read_size(reader, "n_positions", "max_position_embeddings", config.positions);
  config.hidden = read_size(reader, "n_embd", "hidden_size", config.hidden);
  config.blocks = read_size(reader, "n_layer", "num_hidden_layers", config.blocks);
  config.heads = read_size(reader, "n_head", "num_attention_heads", config.heads);
  config.key_heads = config.heads;
  config.head_width =
      divided_width(reader, reader.has("num_attention_heads") ? "num_attention_heads" : "n_head",
                    config.hidden, config.heads);
  config.inner = reader.integer("n_inner", 4 * config.hidden, 1, 4 * kLargestSize);
  config.activation = read_activation(reader, "activation_function", "gelu_new");
  config.residual_dropout = reader.number("resid_pdrop", config.residual_dropout, 0, 1);
  config.embedding_dropout = reader.number("embd_pdrop", config.embedding_dropout, 0, 1);
  config.attention_dropout = reader.number("attn_pdrop", config.attention_dropout, 0, 1);
  config.norm = {NormKind::layer, reader.number("layer_norm_epsilon", 1e-5, 0, 1)};
  config.initializer_range = reader.number("initializer_range", config.initializer_range, 0, 100);
  config.tied = reader.boolean("tie_word_embeddings", config.tied);
  return config;
}

// Norms multiply by 1 + weight and stand on both sides of attention and MLP. Embeddings are scaled
// by √hidden, scores and logits are capped, and every second layer has a window.
DecoderConfig read_gemma_fields(const ConfigReader& reader, DecoderConfig family) {
  family.hidden = 2304;
  family.blocks = 26;
  family.heads = 8;
  family.key_heads = 4;
  family.head_width = 256;
  family.inner = 9216;
  family.tied = true;
  family.padding_token = 0;
  family.norm = {NormKind::rms_one_plus, 1e-6};
  family.residual = Residual::sandwich;
  family.names.after_attention_norm = "post_attention_layernorm";
  family.names.mlp_norm = "pre_feedforward_layernorm";
  family.names.after_mlp_norm = "post_feedforward_layernorm";
  DecoderConfig config = read_llama_fields(reader, family);
  config.embedding_scale = std::sqrt(static_cast<double>(config.hidden));
  config.activation = read_activation(reader, "hidden_activation", "gelu_pytorch_tanh");
  read_attention_bias(reader, config);
  config.attention_scale = 1 / std::sqrt(reader.number("query_pre_attn_scalar", 256, 1e-6, 1e9));
  if (reader.boolean("use_bidirectional_attention", false)) {
    reader.refuse("use_bidirectional_attention", "false: only causal attention is built");
  }
  return config;
}

std::vector<bool> read_layer_types(const ConfigReader& reader, const DecoderConfig& config,
                                   const std::string& type,
                                   const std::function<bool(std::int64_t block)>& absent) {
  const auto types = reader.strings("layer_types");
  if (types && std::cmp_not_equal(types->size(), config.blocks)) {
    reader.refuse("layer_types", fmt::format("{} of them, one for each layer", config.blocks));
  }
  std::vector<bool> chosen;
  chosen.reserve(static_cast<std::size_t>(config.blocks));
  for (std::int64_t block = 0; block < config.blocks; ++block) {
    if (!types) {
      chosen.push_back(absent(block));
      continue;
    }
    const std::string& own = (*types)[static_cast<std::size_t>(block)];
    if (own != type && own != "full_attention") {
      reader.refuse("layer_types", fmt::format("full_attention or {} for each layer", type));
    }
    chosen.push_back(own == type);
  }
  return chosen;
}

void read_window(const ConfigReader& reader, DecoderConfig& config, std::int64_t absent) {
  if (reader.is_null("sliding_window")) return;
  config.window = reader.integer("sliding_window", absent, 1, kLargestSize);
  if (config.window > 0) config.windowed.assign(static_cast<std::size_t>(config.blocks), true);
}

void read_windows(const ConfigReader& reader, DecoderConfig& config, std::int64_t absent,
                  const std::function<bool(std::int64_t block)>& windowed) {
  read_window(reader, config, absent);
  if (config.window == 0) return;
  config.windowed = read_layer_types(reader, config, "sliding_attention", windowed);
}

void read_qwen_window(const ConfigReader& reader, DecoderConfig& config) {
  if (reader.boolean("use_sliding_window", false)) {
    const std::int64_t first = reader.integer("max_window_layers", 28, 0, kLargestSize);
    read_windows(reader, config, 4096, [first](std::int64_t block) { return block >= first; });
  }
}

ExpertOptions read_experts(const ConfigReader& reader, const std::string& count_field,
                           const std::string& inner_field, ExpertOptions family) {
  ExpertOptions experts = family;
  // The hub's library accepts either name.
  const std::string other =
      count_field == "num_local_experts" ? "num_experts" : "num_local_experts";
  experts.count = read_size(reader, count_field, other, family.count);
  experts.per_token = reader.integer("num_experts_per_tok", family.per_token, 1, experts.count);
  experts.inner = reader.integer(inner_field, family.inner, 1, kLargestSize);
  const double coefficient = reader.number("router_aux_loss_coef", family.balance, 0, 1e3);
  experts.balance = reader.boolean("output_router_logits", false) ? coefficient : 0;
  return experts;
}

void set_sparse(DecoderConfig& config, const std::function<bool(std::int64_t block)>& sparse) {
  for (std::int64_t block = 0; block < config.blocks; ++block) {
    config.sparse.push_back(sparse(block));
  }
  config.experts.blocks = std::max<std::int64_t>(1, std::ranges::count(config.sparse, true));
}

FileNames llama_file_names() {
  FileNames names;
  names.head = "lm_head.weight";
  names.embedding = "model.embed_tokens.weight";
  names.prefix = "model.";
  names.parts = {"embed_tokens", "layers", "norm"};
  names.ignored = {".rotary_emb.inv_freq"};
  return names;
}

}  // namespace strait::models

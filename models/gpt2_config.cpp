#include "models/gpt2_config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string>

#include "models/config_reader.h"

namespace strait::models {
namespace {

// Far above any model, low enough that no product of sizes overflows.
constexpr std::int64_t kLargest = 1 << 24;

// The hub's own name of the field, or the one that the library accepts in its place.
std::int64_t gpt2_size(const ConfigReader& reader, const std::string& field,
                       const std::string& other, std::int64_t absent) {
  return reader.integer(reader.has(field) ? field : other, absent, 1, kLargest);
}

Activation gpt2_activation(const ConfigReader& reader) {
  const std::string field = "activation_function";
  const auto known = activation_named(reader.string(field, "gelu_new"));
  if (!known) reader.refuse(field, fmt::format("one of {}", fmt::join(activation_names(), ", ")));
  return *known;
}

}  // namespace

Gpt2Config read_gpt2_config(const ConfigReader& reader) {
  Gpt2Config config;
  config.vocabulary = reader.integer("vocab_size", config.vocabulary, 1, kLargest);
  config.positions = gpt2_size(reader, "n_positions", "max_position_embeddings", config.positions);
  config.hidden = gpt2_size(reader, "n_embd", "hidden_size", config.hidden);
  config.blocks = gpt2_size(reader, "n_layer", "num_hidden_layers", config.blocks);
  config.heads = gpt2_size(reader, "n_head", "num_attention_heads", config.heads);
  if (config.hidden % config.heads != 0) {
    reader.refuse(reader.has("num_attention_heads") ? "num_attention_heads" : "n_head",
                  fmt::format("a divisor of the hidden width {}", config.hidden));
  }
  config.inner = reader.integer("n_inner", 4 * config.hidden, 1, 4 * kLargest);
  config.activation = gpt2_activation(reader);
  config.residual_dropout = reader.number("resid_pdrop", config.residual_dropout, 0, 1);
  config.embedding_dropout = reader.number("embd_pdrop", config.embedding_dropout, 0, 1);
  config.attention_dropout = reader.number("attn_pdrop", config.attention_dropout, 0, 1);
  config.norm_epsilon = reader.number("layer_norm_epsilon", config.norm_epsilon, 0, 1);
  config.initializer_range = reader.number("initializer_range", config.initializer_range, 0, 100);
  config.scale_by_width = reader.boolean("scale_attn_weights", config.scale_by_width);
  config.scale_by_block_index =
      reader.boolean("scale_attn_by_inverse_layer_idx", config.scale_by_block_index);
  config.tied = reader.boolean("tie_word_embeddings", config.tied);
  if (reader.boolean("add_cross_attention", false)) {
    reader.refuse("add_cross_attention", "false: only decoders without cross-attention are built");
  }
  return config;
}

}  // namespace strait::models

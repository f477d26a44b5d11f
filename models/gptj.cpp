#include <algorithm>
#include <cmath>

#include "models/config_fields.h"
#include "models/decoder.h"

namespace strait::models {
namespace {

// One norm feeds attention and MLP; neighbouring values of the first rotary_dim are rotated; biases
// in the MLP and in the head.
DecoderConfig read_gptj(const ConfigReader& reader) {
  DecoderConfig config;
  config.names.tokens = "transformer.wte";
  config.names.blocks = "transformer.h.";
  config.names.attention_norm = "ln_1";
  config.names.query = "attn.q_proj";
  config.names.key = "attn.k_proj";
  config.names.value = "attn.v_proj";
  config.names.attention_output = "attn.out_proj";
  config.names.mlp_norm.clear();
  config.names.up = "mlp.fc_in";
  config.names.down = "mlp.fc_out";
  config.names.final_norm = "transformer.ln_f";
  config.vocabulary = reader.integer("vocab_size", 50400, 1, kLargestSize);
  config.positions = read_size(reader, "n_positions", "max_position_embeddings", 2048);
  config.hidden = read_size(reader, "n_embd", "hidden_size", 4096);
  config.blocks = read_size(reader, "n_layer", "num_hidden_layers", 28);
  config.heads = read_size(reader, "n_head", "num_attention_heads", 16);
  config.key_heads = config.heads;
  config.head_width =
      divided_width(reader, reader.has("num_attention_heads") ? "num_attention_heads" : "n_head",
                    config.hidden, config.heads);
  config.inner = reader.integer("n_inner", 4 * config.hidden, 1, 4 * kLargestSize);
  config.activation = read_activation(reader, "activation_function", "gelu_new");
  config.residual_dropout = reader.number("resid_pdrop", 0, 0, 1);
  config.embedding_dropout = reader.number("embd_pdrop", 0, 0, 1);
  config.attention_dropout = reader.number("attn_pdrop", 0, 0, 1);
  config.norm = {NormKind::layer, reader.number("layer_norm_epsilon", 1e-5, 0, 1)};
  config.initializer_range = reader.number("initializer_range", 0.02, 0, 100);
  config.attention_scale = 1 / std::sqrt(static_cast<double>(config.head_width));
  config.tied = reader.boolean("tie_word_embeddings", false);
  config.residual = Residual::parallel;
  config.gated = false;
  config.mlp_bias = true;
  config.head_bias = true;

  const std::int64_t absent = std::min<std::int64_t>(64, config.head_width);
  const std::int64_t rotated = reader.is_null("rotary_dim")
                                   ? config.head_width
                                   : reader.integer("rotary_dim", absent, 2, config.head_width);
  if (rotated % 2 != 0) reader.refuse("rotary_dim", "an even number");
  auto rotary = std::make_shared<Rotary>(plain_rotary(10000, rotated));
  rotary->pairs = kernels::RotaryPairs::neighbours;
  config.rotary = std::move(rotary);
  return config;
}

FileNames gptj_file_names() {
  FileNames names;
  names.head = "lm_head.weight";
  names.embedding = "transformer.wte.weight";
  names.prefix = "transformer.";
  names.parts = {"wte", "h", "ln_f"};
  names.ignored = {".attn.bias", ".attn.masked_bias", ".attn.embed_positions"};
  return names;
}

}  // namespace

Family gptj_family() { return decoder_family("gptj", read_gptj, gptj_file_names()); }

}  // namespace strait::models

#include <algorithm>
#include <cmath>

#include "models/config_fields.h"
#include "models/decoder.h"

namespace strait::models {
namespace {

// One norm feeds attention and MLP. Adjacent values of the first rotary_dim are rotated in pairs.
// The MLP and the head have biases.
DecoderConfig read_gptj(const ConfigReader& reader) {
  DecoderConfig family;
  family.names.tokens = "transformer.wte";
  family.names.blocks = "transformer.h.";
  family.names.attention_norm = "ln_1";
  family.names.query = "attn.q_proj";
  family.names.key = "attn.k_proj";
  family.names.value = "attn.v_proj";
  family.names.attention_output = "attn.out_proj";
  family.names.mlp_norm.clear();
  family.names.up = "mlp.fc_in";
  family.names.down = "mlp.fc_out";
  family.names.final_norm = "transformer.ln_f";
  family.vocabulary = 50400;
  family.positions = 2048;
  family.hidden = 4096;
  family.blocks = 28;
  family.heads = 16;
  DecoderConfig config = read_gpt2_fields(reader, family);
  config.attention_scale = 1 / std::sqrt(static_cast<double>(config.head_width));
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

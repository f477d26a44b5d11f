#include "models/decoder.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "models/decoder_layers.h"

namespace strait::models {
namespace {

const DecoderConfig& decoder_of(const ModelConfig& config) {
  return std::any_cast<const DecoderConfig&>(config.values);
}

LayerCost embedding_cost(const DecoderConfig& config, const CostQuestion& question) {
  LayerCost cost;
  cost.name = "embedding";
  cost.forward_flops_per_token = 2.0 * static_cast<double>(config.hidden);
  // Two int64 indices and the mask of the dropout.
  cost.saved_bytes_per_token = 16 + (config.embedding_dropout > 0 ? config.hidden : 0);
  if (config.embedding_width > 0) {
    cost.forward_flops_per_token +=
        2.0 * static_cast<double>(config.embedding_width * config.hidden);
    cost.saved_bytes_per_token += config.embedding_width * question.bytes_per_value;
  }
  cost.output_width = config.hidden;
  return cost;
}

// Values per token that an MLP keeps, or the experts of a block.
std::int64_t saved_mlp_values(const DecoderConfig& config, const Lora* lora, int index,
                              const CostQuestion& question) {
  if (config.block_sparse(index - 1)) return saved_expert_values(config, lora, index, question);
  const DecoderNames& names = config.names;
  const std::string prefix = config.block_prefix(index);
  std::int64_t values = (config.gated ? 3 : 1) * config.inner;
  if (keeps_input(lora, prefix, {names.gate, names.up, names.gate_up})) values += config.hidden;
  if (keeps_input(lora, prefix, {names.down})) values += config.inner;
  return values;
}

// The same of a DeltaNet: the convolution's input and result; what the delta rule gives, the norm's
// result, and the gate before and after its activation; factors and steps of the state.
std::int64_t saved_recurrent_values(const DecoderConfig& config, const Lora* lora, int index) {
  const DeltaOptions& options = config.recurrent;
  const std::string own = config.block_prefix(index) + config.names.recurrent;
  std::int64_t values = 2 * options.channels() + 4 * options.values() + 6 * options.heads;
  if (keeps_input(lora, own, {"in_proj_qkv", "in_proj_z", "in_proj_b", "in_proj_a"})) {
    values += config.hidden;
  }
  if (keeps_input(lora, own, {"out_proj"})) values += options.values();
  return values;
}

// The same of latent attention: latents before and after their norms; queries, keys, values and the
// result of attention, all as wide as the widest.
std::int64_t saved_latent_values(const DecoderConfig& config, const Lora* lora, int index) {
  const LatentOptions& latent = config.latent;
  const std::string own = config.block_prefix(index) + "self_attn.";
  const std::int64_t width = std::max(latent.key_width(), latent.value_width);
  const std::int64_t values = config.heads * latent.value_width;
  std::int64_t sum = latent.query_rank + latent.rank + latent.rotated_width;
  sum += 4 * config.heads * width;
  if (keeps_input(lora, own, {"q_proj", "q_a_proj", "kv_a_proj_with_mqa"})) sum += config.hidden;
  if (keeps_input(lora, own, {"q_b_proj"})) sum += latent.query_rank;
  if (keeps_input(lora, own, {"kv_b_proj"})) sum += latent.rank;
  if (width > latent.value_width && keeps_input(lora, own, {"o_proj"})) sum += values;
  return sum;
}

// Values per token that a block's forward keeps for its backward, without adapters.
std::int64_t saved_values(const DecoderConfig& config, const Lora* lora, int index,
                          const CostQuestion& question) {
  const DecoderNames& names = config.names;
  const std::string prefix = config.block_prefix(index);
  if (config.block_recurrent(index - 1)) {
    return 2 * config.hidden + saved_recurrent_values(config, lora, index) +
           saved_mlp_values(config, lora, index, question);
  }
  if (config.latent.rank > 0) {
    return 2 * config.hidden + saved_latent_values(config, lora, index) +
           saved_mlp_values(config, lora, index, question);
  }
  const std::int64_t queries = config.heads * config.head_width;
  const std::int64_t keys = 2 * config.key_heads * config.head_width;
  // The inputs of both norms; queries, keys, values and the result of attention; the MLP's inner
  // values before and after the activation.
  std::int64_t values =
      2 * config.hidden + 2 * queries + keys + saved_mlp_values(config, lora, index, question);
  // The results of these.
  if (keeps_input(lora, prefix, {names.query, names.key, names.value, names.query_key_value})) {
    values += config.hidden;
  }
  if (config.residual == Residual::sandwich) values += 2 * config.hidden;
  if (!names.query_norm.empty()) values += queries + keys / 2;
  if (config.output_gate) values += 2 * queries;
  return values;
}

// Multiplications of a token with the matrices of attention and with keys and values.
double attention_products(const DecoderConfig& config, int index, const CostQuestion& question) {
  const auto hidden = static_cast<double>(config.hidden);
  const auto queries = static_cast<double>(config.heads * config.head_width);
  const auto keys = static_cast<double>(2 * config.key_heads * config.head_width);
  std::int64_t reach = question.row_length;
  if (config.block_windowed(index - 1)) reach = std::min(reach, config.window);
  const double scores = 2 * queries * static_cast<double>(reach);
  return hidden * ((config.output_gate ? 3 : 2) * queries + keys) + scores;
}

// The same of latent attention.
double latent_products(const DecoderConfig& config, const CostQuestion& question) {
  const LatentOptions& latent = config.latent;
  const std::int64_t queries = config.heads * latent.key_width();
  const std::int64_t values = config.heads * latent.value_width;
  const std::int64_t keys = config.heads * (latent.plain_width + latent.value_width);
  std::int64_t products = config.hidden * (latent.rank + latent.rotated_width + values);
  products += latent.rank * keys + question.row_length * (queries + values);
  products += latent.query_rank > 0 ? latent.query_rank * (config.hidden + queries)
                                    : config.hidden * queries;
  return static_cast<double>(products);
}

// Tokens of a chunk of the delta rule (kernels/delta_rule.cpp).
constexpr std::int64_t kDeltaChunk = 64;

// The same of a DeltaNet: products inside a chunk, and with the state.
double recurrent_products(const DecoderConfig& config) {
  const DeltaOptions& options = config.recurrent;
  const std::int64_t matrices =
      config.hidden * (options.channels() + 2 * options.values() + 2 * options.heads);
  const std::int64_t inside =
      kDeltaChunk * (3 * options.key_width + 2 * options.width + kDeltaChunk / 3);
  const std::int64_t with_state = 3 * options.key_width * options.width;
  return static_cast<double>(matrices + options.channels() * options.taps +
                             options.heads * (inside + with_state));
}

// float32 values per token that the backward of the delta rule has at a time, for one document: two
// states for each chunk, about ten matrices of pairs, and twelve vectors of each kind.
std::int64_t recurrent_working_values(const DeltaOptions& options) {
  const std::int64_t states = 2 * options.key_width * options.width / kDeltaChunk;
  return options.heads * (states + 10 * kDeltaChunk + 12 * (options.key_width + options.width));
}

CachedToken cached_token(const DecoderConfig& config) {
  const LatentOptions& latent = config.latent;
  if (latent.rank > 0) return {latent.rank + latent.rotated_width, 2};
  return {2 * config.key_heads * config.head_width, 2 * config.key_heads};
}

// Of latent attention, all as wide as the widest.
std::int64_t attended_values(const DecoderConfig& config) {
  const LatentOptions& latent = config.latent;
  if (latent.rank == 0) return 2 * config.key_heads * config.head_width;
  return 2 * config.heads * std::max(latent.key_width(), latent.value_width);
}

LayerCost block_cost(int index, const ModelConfig& whole, const CostQuestion& question) {
  const DecoderConfig& config = decoder_of(whole);
  LayerCost cost;
  cost.name = fmt::format("block {}", index - 1);
  const auto hidden = static_cast<double>(config.hidden);
  const bool sparse = config.block_sparse(index - 1);
  const bool recurrent = config.block_recurrent(index - 1);
  const std::int64_t inner =
      sparse ? config.experts.per_token * config.experts.inner + config.experts.shared_inner
             : config.inner;
  double products = recurrent                ? recurrent_products(config)
                    : config.latent.rank > 0 ? latent_products(config, question)
                                             : attention_products(config, index, question);
  products += (config.gated ? 3 : 2) * hidden * static_cast<double>(inner);
  if (sparse) products += hidden * static_cast<double>(config.experts.count);
  cost.forward_flops_per_token = 2 * products;
  cost.saved_bytes_per_token =
      saved_values(config, whole.lora.get(), index, question) * question.bytes_per_value;
  if (config.residual_dropout > 0) cost.saved_bytes_per_token += 2 * config.hidden;
  // Gradients of the MLP's inner values: after the activation; if gated, also of both factors and
  // before the activation.
  std::int64_t working = (config.gated ? 4 : 2) * config.inner;
  if (sparse) working = working_expert_values(config, whole.lora.get(), index, question);
  cost.working_bytes_per_token = working * question.bytes_per_value;
  if (recurrent) {
    cost.working_bytes_per_token =
        std::max(cost.working_bytes_per_token, 4 * recurrent_working_values(config.recurrent));
  }
  if (!recurrent) {
    cost.cached = cached_token(config);
    cost.attended_values = attended_values(config);
  }
  cost.output_width = config.hidden;
  return cost;
}

LayerCost head_cost(const DecoderConfig& config, const CostQuestion& question) {
  LayerCost cost;
  cost.name = "head";
  cost.forward_flops_per_token =
      2.0 * static_cast<double>(config.token_width()) * static_cast<double>(config.vocabulary);
  cost.saved_bytes_per_token = 2 * config.hidden * question.bytes_per_value;
  cost.backward_in_forward = true;
  cost.output_width = config.token_width();
  return cost;
}

ModelDescription describe_decoder(const ModelConfig& whole, const CostQuestion& question) {
  const DecoderConfig& config = decoder_of(whole);
  ModelDescription description;
  description.family = whole.family;
  description.hidden = config.hidden;
  description.vocabulary = config.vocabulary;
  description.positions = config.positions;
  description.tied = config.tied;
  description.layers.push_back(embedding_cost(config, question));
  for (int index = 1; index <= config.blocks; ++index) {
    description.layers.push_back(block_cost(index, whole, question));
  }
  description.layers.push_back(head_cost(config, question));
  description.trains_whole_rows.clear();
  if (std::ranges::count(config.recurrent_blocks, true) > 0) {
    description.trains_whole_rows = "its recurrent blocks keep a state along a row";
  } else if (config.experts.balance > 0) {
    description.trains_whole_rows = "the balance loss of its routers is of whole micro-batches";
  }
  return description;
}

std::unique_ptr<Model> make_decoder(const ModelConfig& whole, LayerRange range, at::ScalarType type,
                                    at::Device device) {
  const DecoderConfig& config = decoder_of(whole);
  const int head = static_cast<int>(config.blocks) + 1;
  TORCH_INTERNAL_ASSERT(range.first >= 0 && range.first <= range.last && range.last <= head,
                        "layers ", range.first, " to ", range.last, " of a model with 0 to ", head);
  std::vector<std::unique_ptr<Layer>> layers;
  TiedWeight tied;
  for (int index = range.first; index <= range.last; ++index) {
    const ParameterMaker maker(whole.lora.get(), type, device);
    if (index == 0) {
      auto embedding = std::make_unique<DecoderEmbedding>(config, maker);
      tied.embedding = embedding->tokens().weight();
      tied.padding_row = embedding->tokens().padding_row();
      layers.push_back(std::move(embedding));
    } else if (index < head) {
      layers.push_back(std::make_unique<DecoderBlock>(index, config, maker));
    } else {
      auto last = std::make_unique<DecoderHead>(config, maker, tied.embedding);
      tied.head = last->projection().weight;
      layers.push_back(std::move(last));
    }
  }
  if (config.tied) {
    tied.name = config.names.tokens + ".weight";
    tied.trained = whole.lora == nullptr;
  } else {
    tied = {};
  }
  return std::make_unique<Model>(range, std::move(layers), std::move(tied));
}

bool repeats_decoder(const ModelConfig& whole, LayerRange range) {
  const DecoderConfig& config = decoder_of(whole);
  for (int index = range.first; index <= range.last; ++index) {
    if (index == 0 && config.embedding_dropout > 0) return false;
    if (index == 0 || index > config.blocks) continue;
    if (config.attention_dropout > 0 || config.residual_dropout > 0) return false;
    if (config.block_sparse(index - 1)) return false;
  }
  return true;
}

// Of a DeltaNet, as the hub's library draws them.
constexpr Initialization kDecayRates{.log_lowest = 0.01, .log_highest = 16};

bool is_norm(const std::string& tensor, const DecoderNames& names) {
  for (const std::string* norm :
       {&names.attention_norm, &names.query_norm, &names.key_norm, &names.after_attention_norm,
        &names.mlp_norm, &names.after_mlp_norm, &names.final_norm}) {
    if (!norm->empty() && tensor.ends_with(*norm + ".weight")) return true;
  }
  return false;
}

Initialization initialize_decoder(const ModelConfig& whole, const std::string& tensor) {
  const DecoderConfig& config = decoder_of(whole);
  if (tensor.ends_with(".bias") && !tensor.ends_with(config.names.router + ".bias")) return {0, 0};
  if (tensor.ends_with(kChoiceBias)) return {0, 0};
  const std::string& recurrent = config.names.recurrent;
  if (tensor.ends_with(recurrent + "norm.weight") || tensor.ends_with(recurrent + "dt_bias")) {
    return {1, 0};
  }
  if (tensor.ends_with(recurrent + "A_log")) return kDecayRates;
  if (is_norm(tensor, config.names)) {
    return {config.norm.kind == NormKind::rms_one_plus ? 0.0 : 1.0, 0};
  }
  const bool ends_branch = tensor.ends_with(config.names.attention_output + ".weight") ||
                           tensor.ends_with(config.names.down + ".weight");
  double deviation = config.initializer_range;
  // The last matrix of each residual branch is drawn smaller, so that the sum of branches does not
  // grow with depth.
  if (config.small_ends && ends_branch) {
    deviation /= std::sqrt(2 * static_cast<double>(config.blocks));
  }
  Initialization how{0, deviation};
  if (tensor == config.names.tokens + ".weight") how.zero_row = config.padding_token;
  return how;
}

}  // namespace

Family decoder_family(std::string name, DecoderConfig (*read)(const ConfigReader& reader),
                      FileNames names) {
  Family family;
  family.name = std::move(name);
  family.read = [read](const ConfigReader& reader) { return std::any(read(reader)); };
  family.describe = describe_decoder;
  family.make = make_decoder;
  family.initialization = initialize_decoder;
  family.repeats = repeats_decoder;
  family.names = std::move(names);
  return family;
}

}  // namespace strait::models

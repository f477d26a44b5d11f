#include "models/gpt2.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <cmath>
#include <string_view>
#include <utility>

#include "models/gpt2_layers.h"

namespace strait::models {
namespace {

const Gpt2Config& gpt2_of(const ModelConfig& config) {
  return std::any_cast<const Gpt2Config&>(config.values);
}

std::any read_gpt2(const ConfigReader& reader) { return read_gpt2_config(reader); }

std::vector<TensorShape> gpt2_pair(const std::string& name, std::vector<std::int64_t> weight,
                                   std::int64_t bias) {
  return {{name + ".weight", std::move(weight)}, {name + ".bias", {bias}}};
}

void gpt2_append(std::vector<TensorShape>& all, const std::vector<TensorShape>& more) {
  all.insert(all.end(), more.begin(), more.end());
}

LayerCost gpt2_embedding_cost(const Gpt2Config& config) {
  LayerCost cost;
  cost.name = "embedding";
  cost.tensors = {{kGpt2TokenTable, {config.vocabulary, config.hidden}},
                  {std::string(kGpt2Positions) + ".weight", {config.positions, config.hidden}}};
  cost.forward_flops_per_token = 2.0 * static_cast<double>(config.hidden);
  // Two int64 indices and the dropout's mask.
  cost.saved_bytes_per_token = 16 + (config.embedding_dropout > 0 ? config.hidden : 0);
  cost.output_width = config.hidden;
  return cost;
}

// Values per token that a block's forward keeps: the input and output of both norms, q, k, v, what
// attention gives, the MLP's inner values before and after the activation; one byte for each value
// that a dropout may drop. With attention dropout the probabilities are kept too, before and after.
std::int64_t gpt2_saved_bytes(const Gpt2Config& config, const CostQuestion& question) {
  const std::int64_t values = 8 * config.hidden + 2 * config.inner;
  std::int64_t bytes = values * question.bytes_per_value;
  if (config.residual_dropout > 0) bytes += 2 * config.hidden;
  if (config.attention_dropout > 0) {
    bytes += config.heads * question.row_length * (2 * question.bytes_per_value + 1);
  }
  return bytes;
}

LayerCost gpt2_block_cost(int index, const Gpt2Config& config, const CostQuestion& question) {
  const std::string prefix = gpt2_block_prefix(index);
  const std::int64_t hidden = config.hidden;
  LayerCost cost;
  cost.name = fmt::format("block {}", index - 1);
  gpt2_append(cost.tensors, gpt2_pair(prefix + "ln_1", {hidden}, hidden));
  gpt2_append(cost.tensors, gpt2_pair(prefix + "attn.c_attn", {hidden, 3 * hidden}, 3 * hidden));
  gpt2_append(cost.tensors, gpt2_pair(prefix + "attn.c_proj", {hidden, hidden}, hidden));
  gpt2_append(cost.tensors, gpt2_pair(prefix + "ln_2", {hidden}, hidden));
  gpt2_append(cost.tensors, gpt2_pair(prefix + "mlp.c_fc", {hidden, config.inner}, config.inner));
  gpt2_append(cost.tensors, gpt2_pair(prefix + "mlp.c_proj", {config.inner, hidden}, hidden));
  const auto width = static_cast<double>(hidden);
  const double matrices = width * (4 * width + 2 * static_cast<double>(config.inner));
  const double scores = 2 * width * static_cast<double>(question.row_length);
  cost.forward_flops_per_token = 2 * (matrices + scores);
  cost.saved_bytes_per_token = gpt2_saved_bytes(config, question);
  cost.output_width = hidden;
  return cost;
}

LayerCost gpt2_head_cost(const Gpt2Config& config, const CostQuestion& question) {
  LayerCost cost;
  cost.name = "head";
  cost.tensors = gpt2_pair(kGpt2FinalNorm, {config.hidden}, config.hidden);
  if (config.tied) {
    cost.tied_to = kGpt2TokenTable;
  } else {
    cost.tensors.push_back({kGpt2LmHead, {config.vocabulary, config.hidden}});
  }
  cost.forward_flops_per_token =
      2.0 * static_cast<double>(config.hidden) * static_cast<double>(config.vocabulary);
  cost.saved_bytes_per_token = 2 * config.hidden * question.bytes_per_value;
  cost.output_width = config.hidden;
  return cost;
}

ModelDescription describe_gpt2(const ModelConfig& whole, const CostQuestion& question) {
  const Gpt2Config& config = gpt2_of(whole);
  ModelDescription description;
  description.family = "gpt2";
  description.hidden = config.hidden;
  description.vocabulary = config.vocabulary;
  description.positions = config.positions;
  description.tied = config.tied;
  description.layers.push_back(gpt2_embedding_cost(config));
  for (int index = 1; index <= config.blocks; ++index) {
    description.layers.push_back(gpt2_block_cost(index, config, question));
  }
  description.layers.push_back(gpt2_head_cost(config, question));
  for (LayerCost& layer : description.layers) {
    for (const TensorShape& tensor : layer.tensors) layer.parameters += tensor.elements();
  }
  return description;
}

std::unique_ptr<Model> make_gpt2(const ModelConfig& whole, LayerRange range, at::ScalarType type,
                                 at::Device device) {
  const Gpt2Config& config = gpt2_of(whole);
  const int head = static_cast<int>(config.blocks) + 1;
  TORCH_INTERNAL_ASSERT(range.first >= 0 && range.first <= range.last && range.last <= head,
                        "layers ", range.first, " to ", range.last, " of a model with 0 to ", head);
  std::vector<std::unique_ptr<Layer>> layers;
  TiedWeight tied;
  for (int index = range.first; index <= range.last; ++index) {
    const ParameterMaker maker(type, device);
    if (index == 0) {
      auto embedding = std::make_unique<Gpt2Embedding>(config, maker);
      tied.embedding = embedding->tokens();
      layers.push_back(std::move(embedding));
    } else if (index < head) {
      layers.push_back(std::make_unique<Gpt2Block>(index, config, maker));
    } else {
      auto last = std::make_unique<Gpt2LmHead>(config, maker, tied.embedding);
      tied.head = last->projection();
      layers.push_back(std::move(last));
    }
  }
  if (config.tied) {
    tied.name = kGpt2TokenTable;
  } else {
    tied = {};
  }
  return std::make_unique<Model>(range, std::move(layers), std::move(tied));
}

Initialization initialize_gpt2(const ModelConfig& whole, const std::string& tensor) {
  const Gpt2Config& config = gpt2_of(whole);
  if (tensor.ends_with(".bias")) return {0, 0};
  if (tensor.find(".ln_") != std::string::npos) return {1, 0};
  // The end of each residual branch is drawn smaller, so that their sum does not grow with depth.
  const double branches = 2 * static_cast<double>(config.blocks);
  const bool ends_branch = tensor.ends_with("c_proj.weight");
  return {0, config.initializer_range / (ends_branch ? std::sqrt(branches) : 1)};
}

// "attn.bias" of "h.12.attn.bias"; empty where the name is of no block.
std::string_view behind_block_number(std::string_view name) {
  if (name.substr(0, 2) != "h.") return {};
  const std::size_t end = name.find_first_not_of("0123456789", 2);
  const bool numbered = end != std::string_view::npos && end > 2 && name[end] == '.';
  return numbered ? name.substr(end + 1) : std::string_view();
}

std::optional<std::string> canonical_gpt2_name(const std::string& name) {
  constexpr std::string_view kPrefix = "transformer.";
  const bool prefixed = name.rfind(kPrefix, 0) == 0;
  const std::string_view rest = std::string_view(name).substr(prefixed ? kPrefix.size() : 0);
  const std::string_view in_block = behind_block_number(rest);
  // Masks that old files hold as if they were weights.
  if (in_block == "attn.bias" || in_block == "attn.masked_bias") return std::nullopt;
  const std::string_view part = rest.substr(0, rest.find('.') + 1);
  const bool bare = !in_block.empty() || part == "wte." || part == "wpe." || part == "ln_f.";
  return bare && !prefixed ? std::string(kPrefix) + name : name;
}

}  // namespace

Family gpt2_family() {
  return {"gpt2",          read_gpt2,           describe_gpt2, make_gpt2,
          initialize_gpt2, canonical_gpt2_name, kGpt2LmHead,   kGpt2TokenTable};
}

}  // namespace strait::models

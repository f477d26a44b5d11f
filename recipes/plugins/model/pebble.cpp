#include <ATen/ops/cat.h>
#include <strait/plugin.h>

#include <cmath>
#include <utility>

#include "models/attention.h"
#include "models/embedding.h"
#include "models/families.h"
#include "models/mlp.h"
#include "models/norm.h"

// A decoder of a family of one's own, made of strait's blocks: tokens attend with what they are,
// without query, key and value matrices, and one MLP follows. A third fewer parameters than gpt2.
namespace {

using namespace strait::models;

struct PebbleConfig {
  std::int64_t vocabulary = 0;
  std::int64_t positions = 0;
  std::int64_t hidden = 0;
  std::int64_t blocks = 0;
  std::int64_t heads = 0;

  std::int64_t inner() const { return 4 * hidden; }
};

const PebbleConfig& pebble_of(const ModelConfig& config) {
  return std::any_cast<const PebbleConfig&>(config.values);
}

std::any read(const ConfigReader& reader) {
  constexpr std::int64_t kLargest = 1 << 20;
  PebbleConfig config;
  config.vocabulary = reader.integer("vocab_size", 257, 1, kLargest);
  config.positions = reader.integer("max_position_embeddings", 128, 1, kLargest);
  config.hidden = reader.integer("hidden_size", 96, 1, kLargest);
  config.blocks = reader.integer("num_hidden_layers", 4, 1, 4096);
  config.heads = reader.integer("num_attention_heads", 4, 1, 4096);
  if (config.hidden % config.heads != 0) {
    reader.refuse("num_attention_heads", "a divisor of hidden_size");
  }
  return config;
}

// Layer 1 is the first block, which names count as number 0.
std::string prefix(int index) { return "pebble.blocks." + std::to_string(index - 1) + "."; }

class PebbleEmbedding final : public Layer {
 public:
  PebbleEmbedding(const PebbleConfig& config, ParameterMaker maker)
      : Layer(0),
        tokens_(maker, "pebble.tokens", config.vocabulary, config.hidden, "token"),
        positions_(maker, "pebble.positions", config.positions, config.hidden, "position") {
    adopt(maker);
  }
  at::Tensor forward(const at::Tensor& tokens, const Pass& pass) override {
    return tokens_.forward(tokens).add(positions_.forward(pass.positions));
  }

 private:
  Embedding tokens_;
  Embedding positions_;
};

class PebbleBlock final : public Layer {
 public:
  PebbleBlock(int index, const PebbleConfig& config, ParameterMaker maker)
      : Layer(index),
        heads_(config.heads),
        norm_(maker, prefix(index) + "norm", config.hidden, {NormKind::layer, 1e-5}),
        mlp_{std::nullopt, Linear(maker, prefix(index) + "up", {2 * config.hidden, config.inner()}),
             /*gated=*/false, Activation::gelu_tanh,
             Linear(maker, prefix(index) + "down", {config.inner(), config.hidden})} {
    adopt(maker);
  }

  at::Tensor forward(const at::Tensor& input, const Pass& pass) override {
    const at::Tensor own = norm_.forward(input);
    const std::int64_t width = own.size(2) / heads_;
    const at::Tensor by_head = own.view({own.size(0), own.size(1), heads_, width});
    const double scale = 1 / std::sqrt(static_cast<double>(width));
    const at::Tensor seen = attend({by_head, by_head, by_head}, {scale, 0, index()}, pass);
    return input.add(mlp_.forward(at::cat({own, seen}, 2), pass));
  }

 private:
  std::int64_t heads_;
  Norm norm_;
  Mlp mlp_;
};

class PebbleHead final : public Head {
 public:
  PebbleHead(const PebbleConfig& config, ParameterMaker maker)
      : Head(static_cast<int>(config.blocks) + 1),
        norm_(maker, "pebble.norm", config.hidden, {NormKind::layer, 1e-5}) {
    set_projection({maker.make("pebble.head.weight", {config.vocabulary, config.hidden}), {}});
    adopt(maker);
  }
  at::Tensor forward(const at::Tensor& input, const Pass&) override { return norm_.forward(input); }

 private:
  Norm norm_;
};

LayerCost cost_of(const PebbleConfig& config, int index, const CostQuestion& question) {
  const std::int64_t hidden = config.hidden;
  LayerCost cost;
  cost.output_width = hidden;
  if (index == 0) {
    cost.name = "embedding";
    cost.forward_flops_per_token = static_cast<double>(hidden);
    cost.saved_bytes_per_token = 16;
  } else if (index <= config.blocks) {
    cost.name = "block " + std::to_string(index - 1);
    const double scores = 4.0 * static_cast<double>(hidden * question.row_length);
    cost.forward_flops_per_token = 6.0 * static_cast<double>(hidden * config.inner()) + scores;
    cost.saved_bytes_per_token = (5 * hidden + 2 * config.inner()) * question.bytes_per_value;
  } else {
    cost.name = "head";
    cost.forward_flops_per_token = 2.0 * static_cast<double>(hidden * config.vocabulary);
    cost.saved_bytes_per_token = 2 * hidden * question.bytes_per_value;
  }
  return cost;
}

ModelDescription describe_pebble(const ModelConfig& whole, const CostQuestion& question) {
  const PebbleConfig& config = pebble_of(whole);
  ModelDescription model;
  model.family = whole.family;
  model.hidden = config.hidden;
  model.vocabulary = config.vocabulary;
  model.positions = config.positions;
  model.trains_whole_rows.clear();  // tokens meet in attend() only
  for (int index = 0; index <= config.blocks + 1; ++index) {
    model.layers.push_back(cost_of(config, index, question));
  }
  return model;
}

std::unique_ptr<Model> make(const ModelConfig& whole, LayerRange range, at::ScalarType type,
                            at::Device device) {
  const PebbleConfig& config = pebble_of(whole);
  std::vector<std::unique_ptr<Layer>> layers;
  for (int index = range.first; index <= range.last; ++index) {
    const ParameterMaker maker(whole.lora.get(), type, device);
    if (index == 0) {
      layers.push_back(std::make_unique<PebbleEmbedding>(config, maker));
    } else if (index <= config.blocks) {
      layers.push_back(std::make_unique<PebbleBlock>(index, config, maker));
    } else {
      layers.push_back(std::make_unique<PebbleHead>(config, maker));
    }
  }
  return std::make_unique<Model>(range, std::move(layers), TiedWeight{});
}

Initialization initialization(const ModelConfig&, const std::string& tensor) {
  if (tensor.ends_with(".bias")) return {0, 0};
  if (tensor.ends_with("norm.weight")) return {1, 0};
  return {0, 0.06};
}

void offer(strait::Extensions& strait) {
  strait.family({"pebble", read, describe_pebble, make, initialization, {}});
}

}  // namespace

STRAIT_PLUGIN(offer)

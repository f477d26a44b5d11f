// A chunk by itself: split backwards, and the memory that passes hold until their parts are done.
#include "stages/chunk.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "models/initialize.h"
#include "models/model_config.h"
#include "schedules/action_lists.h"
#include "tests/kernels/live_bytes.h"

namespace strait::stages {
namespace {

constexpr std::int64_t kRowsOfPass = 2;
constexpr std::int64_t kLength = 64;
constexpr std::int64_t kWidth = 48;
constexpr models::LayerRange kBlocks{1, 2};

models::ModelConfig config_of(double dropout) {
  return models::parse_config(
      fmt::format(R"({{"model_type": "gpt2", "vocab_size": 61, "n_positions": 64, "n_embd": {},
                       "n_layer": 4, "n_head": 2, "resid_pdrop": {d}, "attn_pdrop": {d}}})",
                  kWidth, fmt::arg("d", dropout)),
      "config.json");
}

// Two blocks of a model, the same whenever they are made.
struct TwoBlocks {
  std::unique_ptr<models::Model> model;
  std::unique_ptr<Chunk> chunk;

  TwoBlocks(const models::ModelConfig& config, const ChunkOptions& options)
      : model(models::make_model(config, kBlocks, at::kFloat, at::kCPU)),
        chunk(std::make_unique<Chunk>(*model, options)) {
    models::initialize(*model, config, 1);
  }

  void forward(int m) const {
    Flow input;
    input.values = values_of(m, 0);
    input.rows.padded_length = kLength;
    for (std::int64_t row = 0; row < kRowsOfPass; ++row) {
      input.rows.rows.push_back({static_cast<store::SampleId>(row), {kLength - 9, 9}});
    }
    chunk->forward({store::Step{0}, true}, MicroBatch{m}, input);
  }
  at::Tensor backward(int m) const { return chunk->backward(MicroBatch{m}, values_of(m, 1)); }
  void act(const schedules::Action& action) const {
    const int m = number(action.micro_batch);
    if (action.work == schedules::Work::forward) forward(m);
    if (action.work == schedules::Work::backward) backward(m);
    if (action.work == schedules::Work::weight_gradient) chunk->weight_gradients(MicroBatch{m});
  }

  static at::Tensor values_of(int m, int what) {
    return at::arange(kRowsOfPass * kLength * kWidth, at::kFloat)
        .add_(13 * m + what)
        .sin_()
        .view({kRowsOfPass, kLength, kWidth});
  }
};

bool is_large(const models::Parameter& parameter) { return parameter.value.dim() == 2; }

TEST(Chunk, SplitBackwardAddsLargeWeightGradientsLaterWithTheSameBits) {
  const models::ModelConfig config = config_of(0.1);
  for (const bool recompute : {false, true}) {
    ChunkOptions options;
    options.recompute = recompute;
    const TwoBlocks whole(config, options);
    options.splits_backward = true;
    const TwoBlocks split(config, options);
    for (int m = 0; m < 3; ++m) {
      whole.forward(m);
      split.forward(m);
    }
    EXPECT_TRUE(at::equal(split.backward(0), whole.backward(0))) << "the gradient for upstream";
    const auto expected = whole.model->parameters();
    const auto got = split.model->parameters();
    for (std::size_t i = 0; i < got.size(); ++i) {
      if (is_large(got[i])) {
        EXPECT_FALSE(got[i].value.grad().defined()) << got[i].name << " was not left for later";
      } else {
        EXPECT_TRUE(at::equal(got[i].value.grad(), expected[i].value.grad())) << got[i].name;
      }
    }
    EXPECT_TRUE(at::equal(split.backward(1), whole.backward(1)));
    split.chunk->weight_gradients(MicroBatch{0});
    EXPECT_TRUE(at::equal(split.backward(2), whole.backward(2)));
    split.chunk->weight_gradients(MicroBatch{1});
    split.chunk->weight_gradients(MicroBatch{2});
    for (std::size_t i = 0; i < got.size(); ++i) {
      EXPECT_TRUE(at::equal(got[i].value.grad(), expected[i].value.grad())) << got[i].name;
    }
  }
}

TEST(Chunk, FrozenChunkHasNoWeightGradients) {
  ChunkOptions options;
  options.first_trained_layer = kBlocks.last + 1;
  options.splits_backward = true;
  const TwoBlocks frozen(config_of(0), options);
  frozen.forward(0);
  EXPECT_FALSE(frozen.backward(0).defined());
  frozen.chunk->weight_gradients(MicroBatch{0});
  for (const models::Parameter& parameter : frozen.model->parameters()) {
    EXPECT_FALSE(parameter.value.grad().defined()) << parameter.name;
  }
}

TEST(Chunk, HoldsWhatThePlanCountsForEachPartOfASplitBackward) {
  const models::ModelConfig config = config_of(0);
  const auto live = std::make_shared<kernels::LiveBytes>();
  const c10::DebugInfoGuard counting(c10::DebugInfoKind::PROFILER_STATE, live);
  ChunkOptions options;
  options.splits_backward = true;
  const TwoBlocks blocks(config, options);
  const schedules::ActionList once = {{schedules::Work::forward, {}, {}},
                                      {schedules::Work::backward, {}, {}},
                                      {schedules::Work::weight_gradient, {}, {}}};
  for (const schedules::Action& action : once) blocks.act(action);  // makes the gradients
  const std::int64_t before = live->bytes();
  blocks.act(once[0]);
  const std::int64_t forward = live->bytes() - before;
  blocks.act(once[1]);
  const std::int64_t weight_gradient = live->bytes() - before;
  blocks.act(once[2]);
  EXPECT_EQ(live->bytes(), before) << "something is held for ever";

  const models::ModelDescription model = models::describe(config, {kLength, sizeof(float)});
  schedules::PassBytes planned;
  for (int i = kBlocks.first; i <= kBlocks.last; ++i) {
    const models::LayerCost& layer = model.layers[static_cast<std::size_t>(i)];
    planned.forward += layer.saved_bytes_per_token * kRowsOfPass * kLength;
    planned.weight_gradient += layer.weight_gradient_bytes_per_token * kRowsOfPass * kLength;
  }
  EXPECT_EQ(weight_gradient, planned.weight_gradient);
  EXPECT_NEAR(static_cast<double>(forward) / static_cast<double>(planned.forward), 1, 0.1);

  const schedules::PipelineShape shape{.stages = 3, .micro_batches = 6};
  for (int stage = 0; stage < shape.stages; ++stage) {
    const auto list = schedules::zero_bubble(shape, StageIndex{stage});
    std::int64_t most = 0;
    for (const schedules::Action& action : list) {
      blocks.act(action);
      most = std::max(most, live->bytes() - before);
    }
    const schedules::PassBytes measured{forward, weight_gradient};
    EXPECT_EQ(most, schedules::most_held(list, {&measured, 1})) << "stage " << stage;
  }
}

// What a pass holds between its forward and its backward, of a family, and what was planned.
std::pair<double, double> held_and_planned(const std::string& text) {
  const models::ModelConfig config = models::parse_config(text, "config.json");
  const auto live = std::make_shared<kernels::LiveBytes>();
  const c10::DebugInfoGuard counting(c10::DebugInfoKind::PROFILER_STATE, live);
  const TwoBlocks blocks(config, {});
  blocks.forward(0);
  blocks.backward(0);  // makes the gradients
  const std::int64_t before = live->bytes();
  blocks.forward(1);
  const std::int64_t forward = live->bytes() - before;
  blocks.backward(1);
  const models::ModelDescription model =
      models::describe(config, {kLength, sizeof(float), /*on_cpu=*/true});
  std::int64_t planned = 0;
  for (int i = kBlocks.first; i <= kBlocks.last; ++i) {
    planned +=
        model.layers[static_cast<std::size_t>(i)].saved_bytes_per_token * kRowsOfPass * kLength;
  }
  return {static_cast<double>(forward), static_cast<double>(planned)};
}

TEST(Chunk, HoldsWhatThePlanCountsOfAGatedModel) {
  const auto [held, planned] = held_and_planned(
      R"({"model_type": "qwen2", "vocab_size": 61, "hidden_size": 48, "intermediate_size": 132,
          "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2,
          "max_position_embeddings": 64})");
  EXPECT_NEAR(held / planned, 1, 0.05);
}

TEST(Chunk, HoldsWhatThePlanCountsOfExperts) {
  const auto [held, planned] = held_and_planned(
      R"({"model_type": "qwen3_moe", "vocab_size": 61, "hidden_size": 48,
          "intermediate_size": 132, "moe_intermediate_size": 64, "num_hidden_layers": 4,
          "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 12, "num_experts": 8,
          "num_experts_per_tok": 3, "max_position_embeddings": 64})");
  EXPECT_NEAR(held / planned, 1, 0.05);
}

TEST(Chunk, RecomputationKeepsInputsOfTrainedLayersOnly) {
  const auto live = std::make_shared<kernels::LiveBytes>();
  const c10::DebugInfoGuard counting(c10::DebugInfoKind::PROFILER_STATE, live);
  const std::int64_t input = kRowsOfPass * kLength * kWidth * std::int64_t{sizeof(float)};
  for (const int trained : {1, 2}) {
    ChunkOptions options;
    options.recompute = true;
    options.first_trained_layer = kBlocks.last + 1 - trained;
    const TwoBlocks blocks(config_of(0), options);
    blocks.forward(0);
    blocks.backward(0);  // makes the gradients
    const std::int64_t before = live->bytes();
    blocks.forward(1);
    EXPECT_EQ((live->bytes() - before) / input, trained);
    blocks.backward(1);
  }
}

}  // namespace
}  // namespace strait::stages

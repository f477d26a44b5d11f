#include "launcher/planner/layer_times.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "models/lora.h"

namespace strait::planner {
namespace {

// A head of 48 times the vocabulary of its width, and small blocks.
models::ModelConfig small_model() {
  return models::parse_config(R"({"model_type": "gpt2", "vocab_size": 12288, "n_positions": 32,
                                  "n_embd": 256, "n_layer": 3, "n_head": 4})",
                              "config.json");
}

std::vector<LayerTime> profile(const models::ModelConfig& config) {
  ProfileQuestion question;
  question.rows = 2;
  question.row = 32;
  return profile_layers(config, models::describe(config, {32, 4}), question);
}

TEST(ProfileLayers, MeasuresEachKindOnce) {
  const int threads = at::get_num_threads();
  const std::vector<LayerTime> times = profile(small_model());
  ASSERT_EQ(times.size(), 5U);
  for (const LayerTime& time : times) EXPECT_GT(time.forward, 0);
  for (int block = 1; block <= 3; ++block) EXPECT_GT(times[block].backward, 0);
  EXPECT_EQ(times[1].forward, times[2].forward);
  EXPECT_EQ(times[1].backward, times[3].backward);
  EXPECT_GT(times[4].forward, times[1].forward) << "gradients of the projection are made in it";
  EXPECT_EQ(at::get_num_threads(), threads);
}

TEST(ProfileLayers, FollowsWhatIsTrained) {
  models::ModelConfig config = small_model();
  auto lora = std::make_shared<models::Lora>();
  lora->blocks = std::vector<std::int64_t>{1};
  config.lora = lora;
  const std::vector<LayerTime> times = profile(config);
  EXPECT_EQ(times[1].backward, 0) << "before the first adapter";
  EXPECT_GT(times[2].backward, 0);
  EXPECT_GT(times[3].backward, 0) << "its input needs a gradient";
}

}  // namespace
}  // namespace strait::planner

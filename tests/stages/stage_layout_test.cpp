#include "stages/stage_layout.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "models/model.h"
#include "models/model_config.h"

namespace strait::stages {
namespace {

models::ModelConfig small_config(bool tied) {
  return models::parse_config(
      fmt::format(R"({{"model_type": "gpt2", "n_layer": 4, "n_embd": 8, "n_head": 2,
                       "vocab_size": 50, "tie_word_embeddings": {}}})",
                  tied),
      "config.json");
}

// The layout of the description, compared with the model. The stage of the LM head owns a tied
// weight.
TEST(StageLayout, HasEveryOwnParameterAndMarksTiedOnes) {
  for (const bool tied : {false, true}) {
    const models::ModelConfig config = small_config(tied);
    for (const auto& [first, last] : {std::pair{0, 5}, {0, 2}, {3, 5}, {1, 4}, {5, 5}}) {
      SCOPED_TRACE(testing::Message() << (tied ? "tied " : "") << first << "-" << last);
      const sync::Layout layout = stage_layout(models::describe(config), {{first, last}});
      const auto model = models::make_model(config, {first, last}, at::kFloat, at::kCPU);

      const models::TiedWeight& shared = model->tied();
      const bool has_twin = shared.embedding.defined() != shared.head.defined();
      std::map<const void*, std::string> memory;
      for (const models::Parameter& parameter : model->parameters()) {
        if (has_twin && parameter.value.is_same(shared.embedding)) continue;
        memory.emplace(parameter.value.const_data_ptr(), parameter.name);
        EXPECT_EQ(layout.piece(parameter.name).spec.shape, parameter.value.sizes().vec());
      }
      EXPECT_EQ(layout.pieces().size(), memory.size());
      for (const sync::Piece& piece : layout.pieces()) {
        EXPECT_EQ(piece.spec.tied, has_twin && piece.spec.name == shared.name) << piece.spec.name;
      }
    }
  }
}

TEST(StageLayout, SeveralChunksAreInLayerOrder) {
  for (const bool tied : {false, true}) {
    const models::ModelDescription model = models::describe(small_config(tied));
    const auto names = [&](const std::vector<models::LayerRange>& chunks) {
      std::vector<std::string> all;
      const sync::Layout layout = stage_layout(model, chunks);
      for (const sync::Piece& piece : layout.pieces()) {
        all.push_back((piece.spec.tied ? "twin " : "") + piece.spec.name);
      }
      return all;
    };
    std::vector<std::string> apart = names({{1, 1}});
    for (const std::string& name : names({{3, 4}})) apart.push_back(name);
    EXPECT_EQ(names({{1, 1}, {3, 4}}), apart);
    EXPECT_EQ(names({{0, 1}, {2, 4}, {5, 5}}), names({{0, 5}})) << "no twin where both are here";
  }
}

}  // namespace
}  // namespace strait::stages

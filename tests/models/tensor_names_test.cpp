#include "models/tensor_names.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/models/tiny_gpt2.h"
#include "tests/refusal_of.h"

namespace strait::models {
namespace {

using testing::HasSubstr;

constexpr const char* kTokens = "transformer.wte.weight";

ModelConfig tiny_config(bool tied = true) {
  DecoderConfig values = tiny_values();
  values.blocks = 2;
  values.tied = tied;
  return {"gpt2", values};
}

std::vector<TensorShape> without_prefix(std::vector<TensorShape> tensors) {
  for (TensorShape& tensor : tensors) {
    if (tensor.name.starts_with("transformer.")) tensor.name = tensor.name.substr(12);
  }
  return tensors;
}

std::string mismatch(const ModelConfig& config, const std::vector<TensorShape>& file) {
  return refusal_of<TensorMismatch>([&] { match_tensors(config, file, "model.safetensors"); });
}

TEST(TensorNames, ACompleteFileMatchesNameByName) {
  for (const bool tied : {true, false}) {
    const ModelConfig config = tiny_config(tied);
    const std::vector<TensorShape> file = describe(config).tensors();
    const auto names = match_tensors(config, file, "f");
    EXPECT_EQ(names.size(), file.size());
    for (const auto& [canonical, in_file] : names) EXPECT_EQ(canonical, in_file);
    EXPECT_EQ(names.contains("lm_head.weight"), !tied);
  }
}

TEST(TensorNames, FilesWithoutThePrefixAndWithOldBuffersMatch) {
  const ModelConfig config = tiny_config();
  std::vector<TensorShape> file = without_prefix(describe(config).tensors());
  file.push_back({"h.0.attn.bias", {1, 1, 32, 32}});
  file.push_back({"h.1.attn.masked_bias", {}});
  file.push_back({"transformer.h.1.attn.bias", {1, 1, 32, 32}});
  const auto names = match_tensors(config, file, "f");
  EXPECT_EQ(names.at(kTokens), "wte.weight");
  EXPECT_EQ(names.at("transformer.h.1.attn.c_attn.bias"), "h.1.attn.c_attn.bias");
  EXPECT_EQ(names.size(), describe(config).tensors().size());
}

TEST(TensorNames, ATiedProjectionMayBeThereTwiceOrOnlyAsTheHead) {
  const ModelConfig config = tiny_config();
  std::vector<TensorShape> file = describe(config).tensors();
  file.push_back({"lm_head.weight", {61, 24}});
  EXPECT_EQ(match_tensors(config, file, "f").at(kTokens), kTokens);
  std::erase_if(file, [](const TensorShape& tensor) { return tensor.name == kTokens; });
  EXPECT_EQ(match_tensors(config, file, "f").at(kTokens), "lm_head.weight");
}

TEST(TensorNames, AllThatIsWrongIsInOneMessage) {
  const ModelConfig config = tiny_config();
  std::vector<TensorShape> file = describe(config).tensors();
  file[0].shape = {62, 24};  // the token table
  std::erase_if(file, [](const TensorShape& tensor) {
    return tensor.name == "transformer.h.1.mlp.c_fc.bias" ||
           tensor.name == "transformer.ln_f.weight";
  });
  file.push_back({"transformer.h.2.ln_1.weight", {24}});
  file.push_back({"score.weight", {2, 24}});
  const std::string message = mismatch(config, file);
  EXPECT_THAT(message, HasSubstr("model.safetensors: "));
  EXPECT_THAT(message, HasSubstr("missing (2): "));
  EXPECT_THAT(message, HasSubstr("transformer.h.1.mlp.c_fc.bias [40]"));
  EXPECT_THAT(message, HasSubstr("transformer.ln_f.weight [24]"));
  EXPECT_THAT(message, HasSubstr("surplus (2): score.weight, transformer.h.2.ln_1.weight"));
  EXPECT_THAT(
      message,
      HasSubstr("misshapen (1): transformer.wte.weight is [62, 24] and should be [61, 24]"));
}

TEST(TensorNames, OfManyProblemsAFewAreNamed) {
  const ModelConfig config = tiny_config();
  std::vector<TensorShape> file = describe(config).tensors();
  for (TensorShape& tensor : file) tensor.shape.push_back(2);
  const std::string text = mismatch(config, file);
  EXPECT_THAT(text, HasSubstr(fmt::format("misshapen ({}): ", file.size())));
  EXPECT_THAT(text, HasSubstr(fmt::format(", … and {} more; check", file.size() - 6)));
}

TEST(TensorNames, AnUntiedModelNeedsItsHead) {
  const ModelConfig config = tiny_config(false);
  EXPECT_THAT(mismatch(config, describe(tiny_config(true)).tensors()),
              HasSubstr("missing (1): lm_head.weight [61, 24]"));
}

TEST(TensorNames, ANameInBothSpellingsIsSurplus) {
  const ModelConfig config = tiny_config();
  std::vector<TensorShape> file = describe(config).tensors();
  file.push_back({"wpe.weight", {32, 24}});
  EXPECT_THAT(mismatch(config, file), HasSubstr("surplus (1): wpe.weight"));
}

ModelConfig latent_config(int blocks) {
  return parse_config(fmt::format(R"({{"model_type": "deepseek_v3", "vocab_size": 61,
      "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": {0},
      "first_k_dense_replace": {0}, "num_attention_heads": 2, "num_key_value_heads": 2}})",
                                  blocks),
                      "config.json");
}

TEST(TensorNames, BlocksThatPredictMoreTokensAreNotTheModels) {
  const ModelConfig config = latent_config(2);
  std::vector<TensorShape> file = describe(config).tensors();
  const std::size_t own = file.size();
  for (const char* block : {"2", "61"}) {
    file.push_back({fmt::format("model.layers.{}.eh_proj.weight", block), {8, 16}});
    EXPECT_TRUE(is_carried(file_names(config), file.back().name));
  }
  EXPECT_EQ(match_tensors(config, file, "f").size(), own);
  file.push_back({"model.layers.3.eh_proj.weight", {8, 16}});
  EXPECT_THAT(mismatch(config, file), HasSubstr("surplus (1): model.layers.3.eh_proj.weight"));
}

TEST(TensorNames, DeepModelHasTheBlockThatOthersPredictWith) {
  const ModelConfig config = latent_config(62);
  EXPECT_FALSE(is_carried(file_names(config), "model.layers.61.input_layernorm.weight"));
  EXPECT_EQ(mismatch(config, describe(config).tensors()), "nothing was refused");
}

TEST(TensorNames, ABiasThatIsAWeightIsNotTakenForABuffer) {
  const ModelConfig config = tiny_config();
  std::vector<TensorShape> file = describe(config).tensors();
  std::erase_if(file, [](const TensorShape& tensor) {
    return tensor.name == "transformer.h.0.attn.c_attn.bias";
  });
  EXPECT_THAT(mismatch(config, file), HasSubstr("missing (1): transformer.h.0.attn.c_attn.bias"));
}

}  // namespace
}  // namespace strait::models

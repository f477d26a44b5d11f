#include "models/model_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <any>

#include "kernels/cross_entropy.h"
#include "models/decoder.h"
#include "models/model_description.h"
#include "tests/refusal_of.h"

namespace strait::models {
namespace {

DecoderConfig parse(const std::string& fields) {
  const ModelConfig config =
      parse_config(R"({"model_type": "gpt2")" + fields + "}", "m/config.json");
  return std::any_cast<DecoderConfig>(config.values);
}

std::string refusal_of_file(const std::string& text) {
  return refusal_of<ConfigError>([&] { parse_config(text, "m/config.json"); });
}

std::string refusal(const std::string& fields) {
  return refusal_of_file(R"({"model_type": "gpt2", )" + fields + "}");
}

TEST(ModelConfig, AnAbsentFieldMeansTheFamilysDefault) {
  const DecoderConfig config = parse("");
  EXPECT_EQ(config.vocabulary, 50257);
  EXPECT_EQ(config.positions, 1024);
  EXPECT_EQ(config.hidden, 768);
  EXPECT_EQ(config.blocks, 12);
  EXPECT_EQ(config.heads, 12);
  EXPECT_EQ(config.inner, 3072);
  EXPECT_EQ(config.activation, Activation::gelu_tanh);
  EXPECT_EQ(config.residual_dropout, 0.1);
  EXPECT_EQ(config.embedding_dropout, 0.1);
  EXPECT_EQ(config.attention_dropout, 0.1);
  EXPECT_EQ(config.norm.epsilon, 1e-5);
  EXPECT_EQ(config.initializer_range, 0.02);
  EXPECT_EQ(config.attention_scale, 0.125);
  EXPECT_FALSE(config.scale_by_block_index);
  EXPECT_TRUE(config.tied);
}

TEST(ModelConfig, ReadsEveryFieldThatCounts) {
  const DecoderConfig config = parse(
      R"(, "vocab_size": 100, "n_positions": 64, "n_embd": 32, "n_layer": 3, "n_head": 4,
         "n_inner": 50, "activation_function": "gelu", "resid_pdrop": 0.2, "embd_pdrop": 0,
         "attn_pdrop": 0.3, "layer_norm_epsilon": 1e-6, "initializer_range": 0.5,
         "scale_attn_weights": false, "scale_attn_by_inverse_layer_idx": true,
         "tie_word_embeddings": false, "task_specific_params": {"x": 1})");
  EXPECT_EQ(config.vocabulary, 100);
  EXPECT_EQ(config.positions, 64);
  EXPECT_EQ(config.hidden, 32);
  EXPECT_EQ(config.blocks, 3);
  EXPECT_EQ(config.heads, 4);
  EXPECT_EQ(config.inner, 50);
  EXPECT_EQ(config.activation, Activation::gelu_erf);
  EXPECT_EQ(config.residual_dropout, 0.2);
  EXPECT_EQ(config.embedding_dropout, 0.0);
  EXPECT_EQ(config.attention_dropout, 0.3);
  EXPECT_EQ(config.norm.epsilon, 1e-6);
  EXPECT_EQ(config.initializer_range, 0.5);
  EXPECT_EQ(config.attention_scale, 1.0);
  EXPECT_TRUE(config.scale_by_block_index);
  EXPECT_FALSE(config.tied);
}

TEST(ModelConfig, NullMeansAbsentAndTheInnerWidthFollowsTheHidden) {
  const DecoderConfig config = parse(R"(, "n_embd": 48, "n_inner": null)");
  EXPECT_EQ(config.inner, 192);
}

TEST(ModelConfig, TakesTheLibrarysOtherNamesOfSizes) {
  const DecoderConfig config =
      parse(R"(, "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 6,
               "max_position_embeddings": 99)");
  EXPECT_EQ(config.hidden, 48);
  EXPECT_EQ(config.blocks, 2);
  EXPECT_EQ(config.heads, 6);
  EXPECT_EQ(config.positions, 99);
}

TEST(ModelConfig, AnUnknownFamilyIsRefusedWithTheKnownOnes) {
  EXPECT_EQ(
      refusal_of_file(R"({"model_type": "gpt9"})"),
      R"(m/config.json: model_type is "gpt9", expected one of "gpt2", "llama", "mistral", "qwen2", "qwen3", "gpt_neox", "opt", "gptj", "phi3", "gemma2", "gemma3_text", "qwen3_moe", "mixtral", "olmoe", "ministral3", "smollm3", "olmo3", "granite", "qwen3_5_text", "qwen3_5_moe_text", "qwen3_5", "qwen3_5_moe", "gpt_oss", "deepseek_v3", "glm4_moe_lite", "mistral4", "mistral3")");
  EXPECT_EQ(
      refusal_of_file("{}"),
      R"(m/config.json: model_type is absent, expected one of "gpt2", "llama", "mistral", "qwen2", "qwen3", "gpt_neox", "opt", "gptj", "phi3", "gemma2", "gemma3_text", "qwen3_moe", "mixtral", "olmoe", "ministral3", "smollm3", "olmo3", "granite", "qwen3_5_text", "qwen3_5_moe_text", "qwen3_5", "qwen3_5_moe", "gpt_oss", "deepseek_v3", "glm4_moe_lite", "mistral4", "mistral3")");
}

TEST(ModelConfig, NamesTheFieldThatIsWrong) {
  EXPECT_EQ(refusal(R"("n_head": "twelve")"),
            R"(m/config.json: n_head is "twelve", expected a whole number from 1 to 16777216)");
  EXPECT_EQ(refusal(R"("n_layer": 0)"),
            "m/config.json: n_layer is 0, expected a whole number from 1 to 16777216");
  EXPECT_EQ(refusal(R"("n_embd": 64, "n_head": 5)"),
            "m/config.json: n_head is 5, expected a divisor of the hidden width 64");
  EXPECT_EQ(refusal(R"("attn_pdrop": 1.5)"),
            "m/config.json: attn_pdrop is 1.5, expected a number from 0 to 1");
  EXPECT_EQ(refusal(R"("tie_word_embeddings": 1)"),
            "m/config.json: tie_word_embeddings is 1, expected true or false");
  EXPECT_EQ(refusal(R"("activation_function": "mish")"),
            R"(m/config.json: activation_function is "mish", )"
            "expected one of gelu, gelu_new, gelu_fast, gelu_pytorch_tanh, relu, silu, swish");
  EXPECT_NE(refusal(R"("add_cross_attention": true)").find("add_cross_attention is true"),
            std::string::npos);
}

TEST(ModelConfig, RefusesNumbersThatNoIntegerHolds) {
  for (const char* number : {"18446744073709551615", "-1", "1e3", "99999999999999999999", "2.5"}) {
    EXPECT_NE(refusal(R"("n_layer": )" + std::string(number)).find("n_layer is"), std::string::npos)
        << number;
  }
}

TEST(ModelConfig, SaysWhereTextIsNotJson) {
  EXPECT_NE(refusal_of_file(R"({"model_type": )").find("m/config.json: not JSON, wrong at byte 16"),
            std::string::npos)
      << refusal_of_file(R"({"model_type": )");
  EXPECT_NE(refusal_of_file("[1]").find("found array"), std::string::npos);
}

TEST(ModelConfig, RefusesNumbersThatNoDoubleHolds) {
  EXPECT_EQ(refusal_of_file(R"({"model_type": "gpt2", "layer_norm_epsilon": 1e999})"),
            "m/config.json: a number in it is beyond 1.8e+308; expected the config.json of a "
            "Hugging Face model");
}

TEST(ModelConfig, RefusesWhatIsNestedTooDeep) {
  const auto nested = [](std::size_t depth) {
    return R"({"vocab_size": )" + std::string(depth, '[') + std::string(depth, ']') + "}";
  };
  EXPECT_NE(refusal_of_file(nested(1'000'000)).find("m/config.json: lists and objects are nested"),
            std::string::npos);
  EXPECT_EQ(refusal(R"("a": ")" + std::string(1000, '{') + R"(\"[", "n_layer": 0)"),
            "m/config.json: n_layer is 0, expected a whole number from 1 to 16777216");
}

TEST(ModelConfig, RefusesSizesOfNoModel) {
  EXPECT_EQ(refusal(R"("n_layer": 4097)"), "m/config.json: 4097 blocks, expected at most 4096");
  const std::string wide = R"({"model_type": "qwen3", "hidden_size": 16777216,
      "num_attention_heads": 16777216, "num_key_value_heads": 1, "head_dim": 16777216})";
  EXPECT_NE(refusal_of_file(wide).find("m/config.json: sizes of a model with about"),
            std::string::npos)
      << refusal_of_file(wide);
}

TEST(ModelConfig, CutsLongValuesShort) {
  const std::string message = refusal(R"("n_layer": ")" + std::string(5000, 'x') + '"');
  EXPECT_LT(message.size(), 200U);
}

std::string family_refusal(const std::string& family, const std::string& fields) {
  return refusal_of_file(R"({"model_type": ")" + family + R"(", )" + fields + "}");
}

TEST(ModelConfig, RefusesWhatNoFamilyComputesWithKeyAndValue) {
  EXPECT_EQ(family_refusal("llama", R"("rope_scaling": {"type": "spiral"})"),
            R"(m/config.json: rope_scaling.type is "spiral", expected one of default, linear, )"
            "dynamic, llama3, yarn, longrope");
  EXPECT_EQ(family_refusal("llama", R"("rope_scaling": {"rope_type": "linear"})"),
            "m/config.json: rope_scaling.factor is absent, expected a number, which this rope_type "
            "needs");
  EXPECT_EQ(family_refusal("llama", R"("num_attention_heads": 6, "hidden_size": 36,
                                       "num_key_value_heads": 4)"),
            "m/config.json: num_key_value_heads is 4, expected a divisor of num_attention_heads "
            "(6)");
  EXPECT_EQ(family_refusal("qwen2", R"("quantization_config": {"bits": 4})"),
            R"(m/config.json: quantization_config is {"bits":4}, expected absent: quantised )"
            "checkpoints are not read; use the original weights");
  EXPECT_EQ(family_refusal("gemma2", R"("use_bidirectional_attention": true)"),
            "m/config.json: use_bidirectional_attention is true, expected false: only causal "
            "attention is built");
  EXPECT_EQ(family_refusal("opt", R"("layerdrop": 0.1)"),
            "m/config.json: layerdrop is 0.1, expected 0: layers are never dropped here");
  EXPECT_EQ(family_refusal("gemma3_text", R"("num_hidden_layers": 2, "layer_types": ["x", "y"])"),
            R"(m/config.json: layer_types is ["x","y"], expected full_attention or )"
            "sliding_attention for each layer");
  EXPECT_EQ(family_refusal("gemma3_text", R"("attn_logit_softcapping": 50)"),
            "m/config.json: attn_logit_softcapping is 50, expected null: this family does not cap "
            "its scores");
  EXPECT_EQ(family_refusal("gpt2", R"("n_head": 4, "num_attention_heads": 8)"),
            "m/config.json: num_attention_heads is 8, expected 4, as n_head is");
  EXPECT_EQ(family_refusal("glm4_moe_lite", R"("partial_rotary_factor": 0.5)"),
            "m/config.json: partial_rotary_factor is 0.5, expected 1: qk_rope_head_dim is the "
            "rotated part of a head");
  EXPECT_EQ(family_refusal("olmo3", R"("rope_scaling": {"type": "yarn", "factor": 2})"),
            R"(m/config.json: rope_scaling.type is "yarn", expected absent: the library reads )"
            "rope_type in this family, and would not scale the angles");
  EXPECT_EQ(family_refusal("phi3", R"("rope_scaling": {"type": "linear", "factor": 2})"),
            R"(m/config.json: rope_scaling.type is "linear", expected default or longrope)");
  EXPECT_EQ(family_refusal("llama", R"("rope_scaling": 3)"),
            "m/config.json: rope_scaling is 3, expected an object");
}

// Rows longer than what is left would need angles that depend on the row.
TEST(ModelConfig, LimitsRowsWhereScalingDependsOnTheirLength) {
  const auto positions = [](const std::string& family, const std::string& fields) {
    return describe(parse_config(R"({"model_type": ")" + family + R"(", "num_hidden_layers": 1, )" +
                                     fields + "}",
                                 "config.json"))
        .positions;
  };
  EXPECT_EQ(positions("llama", R"("max_position_embeddings": 100,
                                  "rope_scaling": {"type": "dynamic", "factor": 4})"),
            100);
  EXPECT_EQ(positions("phi3", R"("max_position_embeddings": 100, "hidden_size": 8,
                                 "num_attention_heads": 2, "original_max_position_embeddings": 20,
                                 "rope_scaling": {"type": "longrope", "short_factor": [1, 2],
                                                  "long_factor": [3, 4]})"),
            20);
  // Its context before scaling is not stored with the factors.
  EXPECT_EQ(positions("phi3", R"("max_position_embeddings": 9000, "hidden_size": 8,
                                 "num_attention_heads": 2,
                                 "rope_scaling": {"type": "yarn", "short_factor": [1, 2],
                                                  "long_factor": [3, 4],
                                                  "original_max_position_embeddings": 20})"),
            4096);
}

TEST(ModelConfig, CountsTheParametersOfTheModelsOnTheHub) {
  const auto parameters = [](const std::string& fields) {
    return describe(parse_config("{" + fields + "}", "config.json")).parameters();
  };
  EXPECT_EQ(parameters(R"("model_type": "qwen2", "hidden_size": 896, "intermediate_size": 4864,
                          "num_hidden_layers": 24, "num_attention_heads": 14,
                          "num_key_value_heads": 2, "tie_word_embeddings": true)"),
            494'032'768);  // Qwen2-0.5B
  EXPECT_EQ(parameters(R"("model_type": "llama", "hidden_size": 2048, "intermediate_size": 8192,
                          "num_hidden_layers": 16, "num_key_value_heads": 8, "head_dim": 64,
                          "vocab_size": 128256, "tie_word_embeddings": true)"),
            1'235'814'400);  // Llama-3.2-1B
  EXPECT_EQ(parameters(R"("model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336,
                          "num_key_value_heads": 8, "vocab_size": 128256)"),
            8'030'261'248);                                            // Llama-3-8B
  EXPECT_EQ(parameters(R"("model_type": "mistral")"), 7'241'732'096);  // Mistral-7B
}

// Of published models with experts. Where a file leaves fields out, so do these.
TEST(ModelConfig, CountsTheParametersOfModelsWithExperts) {
  const auto parameters = [](const std::string& fields) {
    return describe(parse_config("{" + fields + "}", "config.json")).parameters();
  };
  const std::string gpt_oss = R"("model_type": "gpt_oss", "vocab_size": 201088,
      "hidden_size": 2880, "intermediate_size": 2880, "head_dim": 64, "num_attention_heads": 64,
      "num_key_value_heads": 8, "num_experts_per_tok": 4, "sliding_window": 128,
      "max_position_embeddings": 131072, "quantization_config": {"quant_method": "mxfp4"},
      "rope_theta": 150000, "rope_scaling": {"rope_type": "yarn", "factor": 32.0,
      "beta_fast": 32.0, "beta_slow": 1.0, "truncate": false,
      "original_max_position_embeddings": 4096}, )";
  EXPECT_EQ(parameters(gpt_oss + R"("num_hidden_layers": 24, "num_local_experts": 32)"),
            20'914'757'184);  // gpt-oss-20b
  EXPECT_EQ(parameters(gpt_oss + R"("num_hidden_layers": 36, "num_local_experts": 128)"),
            116'829'156'672);  // gpt-oss-120b
  EXPECT_EQ(parameters(R"("model_type": "qwen3_moe", "vocab_size": 151936, "hidden_size": 2048,
                          "intermediate_size": 6144, "moe_intermediate_size": 768,
                          "num_hidden_layers": 48, "num_attention_heads": 32, "head_dim": 128,
                          "num_key_value_heads": 4, "num_experts": 128, "num_experts_per_tok": 8,
                          "norm_topk_prob": true, "decoder_sparse_step": 1,
                          "mlp_only_layers": [], "tie_word_embeddings": false)"),
            30'532'122'624);  // Qwen3-30B-A3B
  EXPECT_EQ(parameters(R"("model_type": "qwen3_5_moe_text", "num_attention_heads": 16)"),
            34'660'610'688);  // Qwen3.5-35B-A3B, without vision
  EXPECT_EQ(parameters(R"("model_type": "glm4_moe_lite")"),
            29'943'390'976 + 46 * 64);  // GLM-4.7-Flash, and what routers choose by
  EXPECT_EQ(parameters(R"("model_type": "deepseek_v3")"),
            671'026'404'352 + 58 * 256);  // DeepSeek-V3
}

// Published files of Mistral Small 3.1 have neither field, and a projection of their own.
TEST(Description, TextOfTextAndImagesIsTiedAsTheWholeOrElseAsItself) {
  const auto tied = [](const std::string& top, const std::string& text) {
    return describe(parse_config(R"({"model_type": "mistral3", )" + top + R"("text_config": {)" +
                                     text + "}}",
                                 "config.json"))
        .tied;
  };
  const std::string on = R"("tie_word_embeddings": true)";
  const std::string off = R"("tie_word_embeddings": false)";
  EXPECT_FALSE(tied("", ""));
  EXPECT_TRUE(tied("", on));
  EXPECT_TRUE(tied(on + ", ", off));
  EXPECT_FALSE(tied(off + ", ", on));
}

TEST(Description, SaysWhyRowsAreTrainedWhole) {
  const auto why = [](const std::string& text) {
    return describe(parse_config("{" + text + "}", "config.json")).trains_whole_rows;
  };
  EXPECT_EQ(why(R"("model_type": "gpt2")"), "");
  EXPECT_EQ(why(R"("model_type": "qwen3_moe")"), "");
  EXPECT_THAT(why(R"("model_type": "qwen3_moe", "output_router_logits": true)"),
              testing::HasSubstr("balance loss"));
  EXPECT_THAT(why(R"("model_type": "qwen3_5_text")"), testing::HasSubstr("state along a row"));
}

// OPT-350m projects to narrower tokens before the table, and the loss takes as many rows as its
// width says.
TEST(Description, LogitsAreOfRowsAsWideAsTokens) {
  const ModelDescription model = describe(parse_config(
      R"({"model_type": "opt", "hidden_size": 1024, "word_embed_proj_dim": 512, "ffn_dim": 4096,
          "num_hidden_layers": 24, "num_attention_heads": 16, "vocab_size": 50272,
          "do_layer_norm_before": false})",
      "config.json"));
  const std::int64_t rows = kernels::cross_entropy_rows(50272, 512);
  EXPECT_NE(rows, kernels::cross_entropy_rows(50272, 1024));
  EXPECT_EQ(model.logits_bytes(1 << 20), 2 * rows * 50272 * 4);
}

}  // namespace
}  // namespace strait::models

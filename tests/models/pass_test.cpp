#include "models/pass.h"

#include <gtest/gtest.h>

#include "models/key_value_cache.h"
#include "tests/models/tiny_gpt2.h"

namespace strait::models {
namespace {

TEST(Pass, PositionsRestartInEveryDocument) {
  const Pass pass = make_pass({{2, 3}, {4}}, 6);
  const at::Tensor expected =
      at::tensor({0, 1, 0, 1, 2, 0, 0, 1, 2, 3, 0, 0}, at::kLong).view({2, 6});
  EXPECT_TRUE(at::equal(pass.positions, expected));
}

TEST(Pass, DocumentsAreSpansOfTheirRows) {
  const Pass pass = make_pass({{2, 1}, {}, {5}}, 5);
  const auto of = [&](std::size_t i) {
    const kernels::AttentionSpan& span = pass.documents[i];
    return std::vector<std::int64_t>{span.row, span.begin, span.length};
  };
  ASSERT_EQ(pass.documents.size(), 3U);
  EXPECT_EQ(of(0), (std::vector<std::int64_t>{0, 0, 2}));
  EXPECT_EQ(of(1), (std::vector<std::int64_t>{0, 2, 1}));
  EXPECT_EQ(of(2), (std::vector<std::int64_t>{2, 0, 5}));
}

void make_recurrent(DecoderConfig& values) {
  values.recurrent = {.key_heads = 1, .heads = 2, .key_width = 4, .width = 6, .taps = 4};
  values.recurrent_blocks = {true, false, true, true};
}

// Each document alone in a row of its own, without packing or padding.
void expect_documents_apart(const DecoderConfig& values, bool training) {
  const auto model = tiny_model(values, all_layers(values));
  const at::NoGradGuard no_grad;
  const at::Tensor tokens = random_tokens(2, 20, 8);
  const std::vector<std::vector<std::int64_t>> documents{{7, 1, 9}, {20}};
  Pass packed = make_pass(documents, 20);
  packed.training = training;
  const at::Tensor together = run_layers(*model, tokens, packed);
  const auto loss = [](const at::Tensor& hidden) {  // of token 0 in place of the vocabulary
    return -hidden.log_softmax(2).select(2, 0).mean().item<double>();
  };
  for (std::int64_t row = 0; row < 2; ++row) {
    std::int64_t begin = 0;
    for (const std::int64_t length : documents[static_cast<std::size_t>(row)]) {
      const at::Tensor apart = run_layers(*model, tokens.narrow(0, row, 1).narrow(1, begin, length),
                                          make_pass({{length}}, length));
      const at::Tensor part = together.narrow(0, row, 1).narrow(1, begin, length);
      EXPECT_LT(largest_difference(apart, part), 1e-5) << "row " << row << " at " << begin;
      EXPECT_NEAR(loss(apart) / loss(part), 1, 1e-6) << "row " << row << " at " << begin;
      begin += length;
    }
  }
}

TEST(Pass, PackedDocumentsGiveWhatTheyGiveApart) {
  for (const bool training : {false, true}) {
    DecoderConfig values = tiny_values_without_dropout();
    expect_documents_apart(values, training);
    make_recurrent(values);
    expect_documents_apart(values, training);
  }
}

TEST(Pass, WhatLiesInPaddingChangesNothingElse) {
  const DecoderConfig values = tiny_values();
  const auto model = tiny_model(values, all_layers(values));
  const at::NoGradGuard no_grad;
  for (const std::vector<std::int64_t>& documents :
       {std::vector<std::int64_t>{5}, std::vector<std::int64_t>{2, 3}}) {
    Pass pass = make_pass({documents}, 9);
    pass.training = true;
    at::Tensor tokens = random_tokens(1, 9, 4);
    const at::Tensor before = run_layers(*model, tokens, pass).narrow(1, 0, 5).clone();
    tokens.narrow(1, 5, 4).fill_(60);
    EXPECT_TRUE(at::equal(before, run_layers(*model, tokens, pass).narrow(1, 0, 5)));
  }
}

TEST(KeyValueCache, GeneratingTokenByTokenGivesTheFullForward) {
  for (const bool recurrent : {false, true}) {
    DecoderConfig values = tiny_values();
    values.scale_by_block_index = true;
    if (recurrent) make_recurrent(values);
    const auto model = tiny_model(values, all_layers(values));
    const at::NoGradGuard no_grad;
    const at::Tensor tokens = random_tokens(2, 18, 6);
    const at::Tensor whole = run_layers(*model, tokens, make_pass({{18}, {18}}, 18));
    SequenceCache first(18);
    SequenceCache second(18);
    std::int64_t begin = 0;
    for (const std::int64_t count : {2, 1, 1, 4, 3, 7}) {  // a prompt, tokens, and more at once
      EXPECT_EQ(second.length(), begin);
      KeyValueCache cache({{&first, count}, {&second, count}});
      const Pass pass = make_pass(cache, 2, count);
      const at::Tensor part = run_layers(*model, tokens.narrow(1, begin, count), pass);
      EXPECT_LT(largest_difference(part, whole.narrow(1, begin, count)), 1e-5) << begin;
      begin += count;
    }
  }
}

}  // namespace
}  // namespace strait::models

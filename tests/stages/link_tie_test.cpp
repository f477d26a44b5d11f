#include "stages/link_tie.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "framework/codec/message.h"
#include "kernels/row_lookup.h"
#include "tests/memory_links.h"
#include "tests/stages/stage_threads.h"

namespace strait::stages {
namespace {

using testing::ElementsAre;

constexpr std::int64_t kVocabulary = 12;
constexpr std::int64_t kTiedWidth = 3;
constexpr Phase kFirstStep{store::Step{0}, true};

// Two micro-batches of two rows each; the last row is padded by one token.
BatchSource small_source() {
  data::TokenRows rows;
  rows.row_length = 3;
  rows.input_ids = {7, 7, 2, 5, 2, 9, 9, 11, 5, 3, 11, 0};
  rows.loss_mask.assign(rows.input_ids.size(), 1);
  rows.document = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, -1};
  const auto file = std::make_shared<const data::TokenFile>(std::move(rows), "rows");
  BatchOptions options;
  options.micro_batch_rows = 2;
  options.micro_batches = 2;
  options.shuffle = false;
  return {file, file, options};
}

LinkPair links() { return memory_links({0, 0}, {1, 0}, "tie"); }

// The head's leaf with its gradient, and both ends.
struct TieEnds {
  BatchSource source = small_source();
  WaitClock waits;
  at::Tensor head = at::randn({kVocabulary, kTiedWidth}).requires_grad_();
  sync::Layout layout{{{"table", {kVocabulary, kTiedWidth}, true}}};
  Gradients gradients{{{"table", head, true}}, layout};
  models::TiedWeight tied{"table", at::empty({0, kTiedWidth}).requires_grad_(), {}};
  net::Link* owner_link = nullptr;
  net::Link* reader_link = nullptr;
  std::unique_ptr<OwnerTie> owner;
  std::unique_ptr<ReaderTie> reader;

  explicit TieEnds(const codec::CodecSettings& codec = {}, std::int64_t padding_token = -1) {
    *tied.padding_row = padding_token;
    auto [first, last] = links();
    reader_link = first.get();
    owner_link = last.get();
    const LinkTieOptions options{tied_row_codec(codec), at::kFloat, 1};
    reader = std::make_unique<ReaderTie>(tied, std::move(first), source, options, waits);
    owner = std::make_unique<OwnerTie>(head, std::move(last), source, options, waits);
  }

  void begin(const Phase& phase) {
    owner->begin(phase, 2);
    reader->begin(phase, 2);
  }
  at::Tensor look_up(const Phase& phase, int micro_batch) {
    const auto rows = reader->rows_of(MicroBatch{micro_batch},
                                      source.padded_tokens(phase, MicroBatch{micro_batch}));
    return kernels::look_up_rows(tied.embedding, at::tensor(rows, at::kLong), *tied.padding_row);
  }
};

TEST(LookedUpRows, AreThoseOfEveryTokenWithFirstAndLastUse) {
  const LookedUpRows rows = looked_up_rows(small_source(), kFirstStep, 2);
  EXPECT_THAT(rows.tokens, ElementsAre(0, 2, 3, 5, 7, 9, 11)) << "0 is the padding";
  EXPECT_THAT(rows.first_use, ElementsAre(ElementsAre(1, 3, 4, 5), ElementsAre(0, 2, 6)));
  EXPECT_THAT(rows.last_use, ElementsAre(ElementsAre(1, 4), ElementsAre(0, 2, 3, 5, 6)));
}

TEST(LinkTie, EmbeddingReadsOwnersValues) {
  TieEnds ends;
  for (const Phase& phase : {kFirstStep, Phase{store::Step{0}, false}, kFirstStep}) {
    ends.begin(phase);
    for (const int micro_batch : {0, 1}) {
      const auto tokens = ends.source.padded_tokens(phase, MicroBatch{micro_batch});
      EXPECT_TRUE(at::equal(ends.look_up(phase, micro_batch),
                            ends.head.index_select(0, at::tensor(tokens, at::kLong))));
      if (phase.training) ends.reader->backward_done(MicroBatch{micro_batch});
    }
    const at::NoGradGuard no_grad;
    ends.head.mul_(1.5);  // an update
    if (phase.training) ends.owner->combine(ends.gradients);
  }
}

// The head's gradient has -0.0 in every value: in one process the embedding's zeros are added to
// rows that were not looked up, too.
TEST(LinkTie, SumHasBitsOfLocalTie) {
  TieEnds ends;
  at::Tensor& sum = ends.gradients.of(ends.head);
  sum.fill_(-0.0F);
  ends.begin(kFirstStep);
  const at::Tensor factors = at::randn({6, kTiedWidth});
  at::Tensor table = ends.head.detach().clone().requires_grad_();
  for (const int micro_batch : {0, 1}) {
    ends.look_up(kFirstStep, micro_batch).mul(factors).sum().backward();
    ends.reader->backward_done(MicroBatch{micro_batch});
    const auto tokens = ends.source.padded_tokens(kFirstStep, MicroBatch{micro_batch});
    kernels::look_up_rows(table, at::tensor(tokens, at::kLong)).mul(factors).sum().backward();
  }
  const at::Tensor expected = table.grad() + sum;
  ends.owner->combine(ends.gradients);
  EXPECT_TRUE(at::equal(sum.view(at::kInt), expected.view(at::kInt)));
}

// Rows are numbered anew in every phase, and the padding token is looked up in some alone.
TEST(LinkTie, PaddingTokenGetsNoGradientFromTheInput) {
  for (const std::int64_t padding : {9, 4}) {
    TieEnds ends({}, padding);
    for (int step = 0; step < 2; ++step) {
      ends.gradients.clear();
      ends.begin(kFirstStep);
      at::Tensor table = ends.head.detach().clone().requires_grad_();
      for (const int micro_batch : {0, 1}) {
        ends.look_up(kFirstStep, micro_batch).sum().backward();
        ends.reader->backward_done(MicroBatch{micro_batch});
        const auto tokens = ends.source.padded_tokens(kFirstStep, MicroBatch{micro_batch});
        kernels::look_up_rows(table, at::tensor(tokens, at::kLong), padding).sum().backward();
      }
      ends.owner->combine(ends.gradients);
      EXPECT_TRUE(at::equal(ends.gradients.of(ends.head), table.grad()));
      EXPECT_EQ(table.grad().select(0, padding).abs().sum().item<float>(), 0);
    }
  }
}

TEST(LinkTie, RowsAreQuantisedBesideCompressedBoundaries) {
  for (const std::int64_t first_bits : {8, 16}) {
    codec::CodecSettings codec;
    codec.forward = "delta";
    codec.backward = "fixed";
    codec.backward_bits = 8;
    codec.first_bits = first_bits;
    TieEnds ends(codec);
    ends.begin(kFirstStep);
    at::Tensor expected = at::zeros({kVocabulary, kTiedWidth});
    for (const int micro_batch : {0, 1}) {
      const at::Tensor tokens =
          at::tensor(ends.source.padded_tokens(kFirstStep, MicroBatch{micro_batch}), at::kLong);
      const at::Tensor exact = ends.head.detach().index_select(0, tokens);
      const at::Tensor values = ends.look_up(kFirstStep, micro_batch);
      EXPECT_FALSE(at::equal(values, exact));
      EXPECT_TRUE(at::allclose(values, exact, 0.02, 0.02));
      const at::Tensor factors = at::randn_like(exact);
      values.mul(factors).sum().backward();
      expected.index_add_(0, tokens, factors);
      ends.reader->backward_done(MicroBatch{micro_batch});
    }
    ends.owner->combine(ends.gradients);
    EXPECT_FALSE(at::equal(ends.gradients.of(ends.head), expected));
    EXPECT_TRUE(at::allclose(ends.gradients.of(ends.head), expected, 0.03, 0.03));
    // An evaluation's are exact.
    const Phase evaluation{store::Step{0}, false};
    ends.begin(evaluation);
    const auto tokens = ends.source.padded_tokens(evaluation, MicroBatch{0});
    EXPECT_TRUE(at::equal(ends.look_up(evaluation, 0),
                          ends.head.index_select(0, at::tensor(tokens, at::kLong))));
  }
}

TEST(LinkTie, OnlyLookedUpRowsCross) {
  TieEnds ends;
  ends.begin(kFirstStep);
  for (const int micro_batch : {0, 1}) {
    ends.look_up(kFirstStep, micro_batch).sum().backward();
    ends.reader->backward_done(MicroBatch{micro_batch});
  }
  ends.owner->combine(ends.gradients);
  const std::uint64_t bytes = 7 * kTiedWidth * sizeof(float);
  for (net::Link* link : {ends.owner_link, ends.reader_link}) {
    EXPECT_GE(link->state().sent_bytes, bytes);
    EXPECT_LT(link->state().sent_bytes, kVocabulary * kTiedWidth * sizeof(float));
  }
}

TEST(LinkTie, RowsOfOtherDataAreRefused) {
  TieEnds ends;
  ends.owner->begin(kFirstStep, 1);
  ends.reader->begin(kFirstStep, 1);
  ends.look_up(kFirstStep, 0);
  ends.owner_link->send(net::Frame(kTiedWidth));
  ends.reader->begin(kFirstStep, 1);
  EXPECT_THROW(ends.look_up(kFirstStep, 0), codec::CodecError);
}

}  // namespace
}  // namespace strait::stages

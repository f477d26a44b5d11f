// Attention on a device with libtorch's flash attention, held against attention by blocks.
#include "kernels/flash_attention.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "tests/device/streams.h"
#include "tests/device/test_device.h"
#include "tests/device/waits.h"
#include "tests/kernels/random_values.h"

namespace strait::kernels {
namespace {

using testing::ElementsAre;

struct Heads {
  std::int64_t heads = 2;
  std::int64_t key_heads = 2;
  std::int64_t width = 8;
  std::int64_t length = 150;  // of keys
  std::int64_t earlier = 0;   // keys before the first query
};

AttentionHeads heads_of(const Heads& shape, at::ScalarType type, at::Device device) {
  const auto make = [&](std::int64_t heads, std::uint64_t seed, std::int64_t earlier = 0) {
    // The same values in every type.
    return normal_values({2, shape.length - earlier, heads, shape.width}, seed, at::kBFloat16)
        .to(type)
        .to(device)
        .requires_grad_();
  };
  return {make(shape.heads, 1, shape.earlier), make(shape.key_heads, 2), make(shape.key_heads, 3)};
}

AttentionRules rules_of(double scale, std::int64_t window) {
  AttentionRules rules;
  rules.scale = scale;
  rules.window = window;
  return rules;
}

std::vector<at::Tensor> attended(const AttentionHeads& heads,
                                 const std::vector<AttentionSpan>& spans,
                                 const AttentionRules& rules) {
  const at::Tensor result = causal_attention(heads, spans, rules);
  const at::Tensor slope = normal_values(result.sizes(), 9).to(result.options());
  torch::autograd::backward({result}, {slope});
  return {result.detach(), heads.query.grad(), heads.key.grad(), heads.value.grad()};
}

// Rounded results of values about 1, of which a gradient adds hundreds.
void expect_near(const std::vector<at::Tensor>& ours, const std::vector<at::Tensor>& expected) {
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const at::Tensor right = expected[i].cpu().to(at::kFloat);
    const double off = (ours[i].cpu().to(at::kFloat) - right).norm().item<double>();
    EXPECT_LT(off / right.norm().item<double>(), 0.01) << "tensor " << i;
  }
}

const std::vector<AttentionSpan> kDocuments{{1, 20, 70}, {0, 0, 150}, {1, 0, 19}};

// Of a slice of 90 tokens after 60.
const std::vector<AttentionSpan> kOfSlice{{1, 31, 50}, {0, 0, 90, 25}, {1, 0, 30, 60}};

TEST(FlashAttention, PacksRowsIntoSequences) {
  const PackedSequences packed = pack_sequences(kDocuments, 2, 150);
  EXPECT_THAT(packed.offsets, ElementsAre(0, 150, 169, 170, 240, 300));
  EXPECT_EQ(packed.longest, 150);
  ASSERT_EQ(packed.padding.size(), 2U);
  EXPECT_EQ(packed.padding[1].row, 1);
  EXPECT_EQ(packed.padding[1].begin, 90);
  EXPECT_EQ(packed.padding[1].length, 60);
  // Padding does not run on into the next row, and costs little however long it is.
  const PackedSequences empty = pack_sequences({}, 2, 100);
  EXPECT_THAT(empty.offsets, ElementsAre(0, 64, 100, 164, 200));
  EXPECT_EQ(empty.padding.size(), 2U);
}

TEST(FlashAttention, PacksTheKeysOfEarlierSlicesThatDocumentsHave) {
  const PackedSequences packed = pack_sequences(kOfSlice, 2, 90);
  EXPECT_THAT(packed.offsets, ElementsAre(0, 90, 120, 121, 171, 180));
  EXPECT_THAT(packed.key_offsets, ElementsAre(0, 115, 205, 206, 256, 265));
  EXPECT_THAT(packed.row_keys, ElementsAre(115, 150));
  EXPECT_EQ(packed.longest, 90);
  EXPECT_EQ(packed.longest_keys, 115);
}

TEST(FlashAttention, FitsWhereDeviceAndFormulaAllowIt) {
  const AttentionRules plain;
  AttentionRules capped;
  capped.softcap = 30;
  AttentionRules dropping;
  dropping.dropout = 0.1;
  const auto fits = [](const Heads& shape, at::ScalarType type, const AttentionRules& rules) {
    return flash_attention_fits(heads_of(shape, type, test_device::device()), rules);
  };
  EXPECT_EQ(no_flash_attention(test_device::device()), "");
  EXPECT_TRUE(fits({}, at::kBFloat16, plain));
  EXPECT_TRUE(fits({}, at::kHalf, rules_of(1, 3)));
  EXPECT_FALSE(fits({}, at::kFloat, plain));
  EXPECT_FALSE(fits({.width = 12}, at::kBFloat16, plain));
  EXPECT_TRUE(fits({.width = 256, .length = 1}, at::kBFloat16, plain));
  EXPECT_FALSE(fits({.width = 208, .length = 1}, at::kBFloat16, plain)) << "some GPUs lack it";
  EXPECT_FALSE(fits({.width = 264, .length = 1}, at::kBFloat16, plain));
  EXPECT_FALSE(fits({}, at::kBFloat16, capped));
  EXPECT_FALSE(fits({}, at::kBFloat16, dropping));
  EXPECT_FALSE(flash_attention_fits(heads_of({}, at::kBFloat16, at::kCPU), plain));
}

TEST(FlashAttention, EqualsAttentionByBlocksWithoutAnyWait) {
  for (const Heads& shape : {Heads{}, Heads{.heads = 6, .key_heads = 2, .width = 16},
                             Heads{.heads = 3, .key_heads = 1}, Heads{.heads = 4, .earlier = 60}}) {
    const std::vector<AttentionSpan>& documents = shape.earlier > 0 ? kOfSlice : kDocuments;
    for (const std::int64_t window : {0, 7, 1000}) {
      const AttentionRules rules = rules_of(0.3, window);
      SCOPED_TRACE(testing::Message() << shape.heads << " heads, window " << window);
      test_device::Streams::all().begin(5);
      const AttentionHeads heads = heads_of(shape, at::kBFloat16, test_device::device());
      const AttentionHeads exact = heads_of(shape, at::kFloat, at::kCPU);
      ASSERT_TRUE(flash_attention_fits(heads, rules));
      const test_device::CountWaits waits(/*places=*/true);
      // The gradients' values come from the host, which is the test's own wait.
      const at::Tensor result = causal_attention(heads, documents, rules);
      torch::autograd::backward({result}, {at::ones_like(result)});
      EXPECT_EQ(waits.hidden(), 0) << testing::PrintToString(waits.places());
      for (const at::Tensor& leaf : {heads.query, heads.key, heads.value}) {
        leaf.mutable_grad() = at::Tensor();
      }
      expect_near(attended(heads, documents, rules), attended(exact, documents, rules));
    }
  }
}

// The device's backward refuses to run where it would add up in any order.
TEST(FlashAttention, BackwardKeepsItsOrderWhereLibtorchOnlyWarns) {
  at::Context& context = at::globalContext();
  context.setDeterministicAlgorithms(true, /*warn_only=*/true);
  const AttentionHeads heads = heads_of({}, at::kBFloat16, test_device::device());
  const at::Tensor result = causal_attention(heads, kDocuments, rules_of(0.3, 0));
  torch::autograd::backward({result}, {at::ones_like(result)});
  EXPECT_TRUE(context.deterministicAlgorithmsWarnOnly());
  // Where the device comes to it later, the order is that of the moment when it was issued.
  heads.query.grad().cpu();
  context.setDeterministicAlgorithms(false, /*warn_only=*/false);
}

TEST(FlashAttention, GivesPaddingNeitherResultNorGradient) {
  test_device::Streams::all().begin(0);
  const AttentionHeads heads = heads_of({}, at::kBFloat16, test_device::device());
  for (const at::Tensor& made : attended(heads, kDocuments, {})) {
    const at::Tensor row = made.cpu().select(0, 1);
    EXPECT_EQ(row.narrow(0, 90, 60).abs().max().item<double>(), 0);
    EXPECT_EQ(row.narrow(0, 19, 1).abs().max().item<double>(), 0);
    EXPECT_GT(row.narrow(0, 20, 70).abs().max().item<double>(), 0);
  }
}

}  // namespace
}  // namespace strait::kernels

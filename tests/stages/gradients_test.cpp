#include "stages/gradients.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace strait::stages {
namespace {

struct Leaves {
  explicit Leaves(bool tied)
      : layout({{"block", {4, 16}}, {"head", {8, 16}, tied}}),
        gradients({{"block", block}, {"head", head}}, layout) {
    gradients.added_before_backward(head);
    gradients.on_ready(layout, [this](sync::Range range) { ready.push_back(range.first); });
  }

  at::Tensor block = at::ones({4, 16}).requires_grad_();
  at::Tensor head = at::ones({8, 16}).requires_grad_();
  sync::Layout layout;
  Gradients gradients;
  std::vector<std::int64_t> ready;
};

// The projection's sum is complete before the last backward; others need not wait for its end.
TEST(Gradients, AnnounceTheHeadWhenTheLastBackwardBegins) {
  Leaves leaves(false);
  leaves.gradients.announce(false);
  leaves.block.sum().backward();
  EXPECT_THAT(leaves.ready, testing::IsEmpty());
  leaves.gradients.announce(true);
  const std::int64_t head = leaves.layout.piece("head").range.first;
  EXPECT_THAT(leaves.ready, testing::ElementsAre(head));
  leaves.block.sum().backward();
  EXPECT_THAT(leaves.ready, testing::ElementsAre(head, leaves.layout.piece("block").range.first));
}

TEST(Gradients, AnnounceNoTiedHead) {
  Leaves leaves(true);
  leaves.gradients.announce(true);
  EXPECT_THAT(leaves.ready, testing::IsEmpty());
}

}  // namespace
}  // namespace strait::stages

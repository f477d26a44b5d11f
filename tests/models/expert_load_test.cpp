#include "models/expert_load.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace strait::models {
namespace {

at::Tensor loss_of(const ExpertLoad::Part& part) {
  const at::Tensor counts = at::tensor(part.counts, at::kFloat);
  return counts.dot(part.shares) / static_cast<double>(part.tokens * part.tokens);
}

// The balance of a micro-batch is a product of sums over all of its tokens.
TEST(ExpertLoad, OfSlicesIsThatOfWholeMicroBatches) {
  ExpertLoad whole;
  ExpertLoad sliced;
  const auto part = [](std::int64_t one, std::int64_t other, float share) {
    return ExpertLoad::Part{{one, other},
                            at::tensor({share, static_cast<float>(one + other) - share}),
                            one + other,
                            {}};
  };
  for (const int layer : {1, 2}) {
    for (int micro_batch = 0; micro_batch < 2; ++micro_batch) {
      sliced.add(layer, part(3, 1, 1.5F), false, loss_of);
      sliced.add(layer, part(0, 4, 3), true, loss_of);
      sliced.add(layer, part(2, 0, 0.5F), true, loss_of);
      whole.add(layer, part(5, 5, 5), false, loss_of);
    }
  }
  EXPECT_EQ(sliced.tokens, whole.tokens);
  EXPECT_NEAR(sliced.balance.item<float>(), whole.balance.item<float>(), 1e-6);
}

}  // namespace
}  // namespace strait::models

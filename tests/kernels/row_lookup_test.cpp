#include "kernels/row_lookup.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "kernels/random.h"
#include "tests/kernels/random_values.h"

namespace strait::kernels::row_lookup_test {
namespace {

at::Tensor lookup_indices(at::IntArrayRef sizes, std::int64_t rows, std::uint64_t seed) {
  at::Generator generator = keyed_generator(seed, at::kCPU);
  return at::empty(sizes, at::kLong).random_(0, rows, generator);
}

TEST(RowLookup, GivesTheBitsOfLibtorchsEmbeddingAndItsGradient) {
  const at::Tensor indices = lookup_indices({4, 50}, 30, 1);  // many rows more than once
  const at::Tensor slope = normal_values({4, 50, 12}, 2);
  const at::Tensor ours = normal_values({30, 12}, 3).requires_grad_();
  const at::Tensor theirs = normal_values({30, 12}, 3).requires_grad_();
  const at::Tensor output = look_up_rows(ours, indices);
  const at::Tensor expected = at::embedding(theirs, indices);
  EXPECT_TRUE(at::equal(output, expected));
  torch::autograd::backward({output}, {slope});
  torch::autograd::backward({expected}, {slope});
  EXPECT_TRUE(at::equal(ours.grad(), theirs.grad()));
}

TEST(RowLookup, AddsIntoTheGradientThatIsThere) {
  const at::Tensor table = normal_values({9, 3}, 3).requires_grad_();
  at::Tensor buffer = at::ones({9, 3});
  table.mutable_grad() = buffer;
  const at::Tensor indices = at::tensor({2, 5, 2}, at::kLong);
  for (int pass = 0; pass < 2; ++pass) {
    torch::autograd::backward({look_up_rows(table, indices)}, {at::ones({3, 3})});
  }
  at::Tensor expected = at::ones({9, 3});
  expected[2] = 5;
  expected[5] = 3;
  EXPECT_TRUE(at::equal(buffer, expected));
  EXPECT_TRUE(table.grad().is_same(buffer));
}

TEST(RowLookup, KeepsNothingWhereGradientsAreOff) {
  const at::Tensor table = normal_values({9, 3}, 3).requires_grad_();
  const at::NoGradGuard no_grad;
  EXPECT_FALSE(look_up_rows(table, at::tensor({1}, at::kLong)).requires_grad());
}

TEST(RowLookup, WorksInBfloat16) {
  const at::Tensor table = normal_values({9, 4}, 3).to(at::kBFloat16).requires_grad_();
  const at::Tensor indices = at::tensor({8, 8}, at::kLong);
  torch::autograd::backward({look_up_rows(table, indices)}, {at::ones({2, 4}, at::kBFloat16)});
  EXPECT_EQ(table.grad().scalar_type(), at::kBFloat16);
  EXPECT_EQ(table.grad()[8].sum().item<double>(), 8.0);
}

// A narrow sum stands still where what is added is less than half a unit of its last place.
TEST(RowLookup, SumsFrequentRowsInTheTypeOfTheGradient) {
  at::Tensor table = normal_values({9, 4}, 3).to(at::kBFloat16).requires_grad_();
  table.mutable_grad() = at::zeros({9, 4}, at::kFloat);
  const at::Tensor indices = at::full({1000}, 5, at::kLong);
  torch::autograd::backward({look_up_rows(table, indices)}, {at::ones({1000, 4}, at::kBFloat16)});
  EXPECT_EQ(table.grad()[5].sum().item<double>(), 4000.0);
}

}  // namespace
}  // namespace strait::kernels::row_lookup_test

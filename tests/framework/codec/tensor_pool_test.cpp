#include "framework/codec/tensor_pool.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <array>
#include <set>

namespace strait::codec::tensor_pool_test {
namespace {

using Shape = std::array<std::int64_t, 3>;

TEST(TensorPool, ReusesDroppedTensor) {
  TensorPool pool(at::kFloat);
  at::Tensor first = pool.take(Shape{2, 3, 4});
  const void* memory = first.const_data_ptr();
  first.reset();
  EXPECT_EQ(pool.take(Shape{2, 3, 4}).const_data_ptr(), memory);
  // A smaller one is as good.
  const at::Tensor second = pool.take(Shape{1, 3, 4});
  EXPECT_EQ(second.const_data_ptr(), memory);
  EXPECT_EQ(second.sizes(), (std::vector<std::int64_t>{1, 3, 4}));
  EXPECT_TRUE(second.is_contiguous());
}

TEST(TensorPool, DoesNotReuseReferencedTensor) {
  TensorPool pool(at::kBFloat16);
  std::set<const void*> held;
  std::vector<at::Tensor> tensors;
  for (int i = 0; i < 3; ++i) {
    const at::Tensor taken = pool.take(Shape{2, 3, 4});
    held.insert(taken.const_data_ptr());
    // A tensor, a view of it, and what autograd would save: each is enough.
    if (i == 0) tensors.push_back(taken);
    if (i == 1) tensors.push_back(taken[1].slice(0, 1, 2));
    if (i == 2) tensors.push_back(taken.detach());
  }
  EXPECT_EQ(held.size(), 3U);
  EXPECT_FALSE(held.contains(pool.take(Shape{2, 3, 4}).const_data_ptr()));
  tensors.clear();
  EXPECT_TRUE(held.contains(pool.take(Shape{2, 3, 4}).const_data_ptr()));
}

TEST(TensorPool, ReusedTensorHasNoAutogradState) {
  TensorPool pool(at::kFloat);
  {
    at::Tensor leaf = pool.take(Shape{1, 2, 2});
    leaf.zero_().requires_grad_();
    leaf.mutable_grad() = at::ones({1, 2, 2});
  }
  const at::Tensor again = pool.take(Shape{1, 2, 2});
  EXPECT_FALSE(again.requires_grad());
  EXPECT_FALSE(again.grad().defined());
}

TEST(TensorPool, GrowsFreeTensorForLargerRequest) {
  TensorPool pool(at::kFloat);
  pool.take(Shape{1, 2, 3});
  const at::Tensor large = pool.take(Shape{8, 20, 30});
  EXPECT_EQ(large.numel(), 4800);
  large.fill_(7);
  EXPECT_EQ(large.sum().item<float>(), 33600);
  const at::Tensor other = pool.take(Shape{8, 20, 30});
  EXPECT_NE(other.const_data_ptr(), large.const_data_ptr());
}

}  // namespace
}  // namespace strait::codec::tensor_pool_test

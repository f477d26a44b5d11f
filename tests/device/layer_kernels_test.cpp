// What layers compute by the kernels of CUDA, in their emulation, held against libtorch's operators
// on the CPU: values, gradients, and that the host waits for nothing.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <functional>
#include <vector>

#include "kernels/cross_entropy.h"
#include "kernels/gated_product.h"
#include "kernels/gpu_rows.h"
#include "kernels/kernel_tensors.h"
#include "kernels/rms_norm.h"
#include "kernels/rotate_heads.h"
#include "tests/device/waits.h"
#include "tests/kernels/random_values.h"

namespace strait::kernels {
namespace {

using test_device::CountWaits;

const at::Device kGpu(at::kPrivateUse1, 0);

// A function of leaves, and the slope of its result.
struct Layer {
  std::vector<at::Tensor> inputs;
  at::Tensor slope;
  std::function<at::Tensor(const std::vector<at::Tensor>&)> forward;
};

// The result and the gradients of all inputs, on the host.
std::vector<at::Tensor> computed_on(at::Device device, const Layer& layer) {
  std::vector<at::Tensor> leaves;
  for (const at::Tensor& input : layer.inputs) {
    leaves.push_back(on_device(input, device).detach().requires_grad_());
  }
  const at::Tensor slope = on_device(layer.slope, device);
  std::vector<at::Tensor> results;
  {
    const CountWaits waits;
    results.push_back(layer.forward(leaves));
    torch::autograd::backward({results[0]}, {slope});
    EXPECT_EQ(waits.hidden(), 0);
  }
  for (const at::Tensor& leaf : leaves) results.push_back(leaf.grad());
  for (at::Tensor& result : results) result = result.detach().cpu();
  return results;
}

void expect_as_on_the_cpu(const Layer& layer, double relative) {
  if (!gpu_kernels_run_on(kGpu)) GTEST_SKIP() << "this build has the kernels of CUDA";
  ASSERT_TRUE(layer_kernels_take(on_device(layer.inputs[0], kGpu)));
  const std::vector<at::Tensor> there = computed_on(kGpu, layer);
  const std::vector<at::Tensor> here = computed_on(at::kCPU, layer);
  for (std::size_t i = 0; i < here.size(); ++i) {
    EXPECT_EQ(there[i].sizes(), here[i].sizes());
    EXPECT_EQ(there[i].scalar_type(), here[i].scalar_type());
    const double size = here[i].to(at::kDouble).abs().max().item<double>();
    EXPECT_LE(largest_difference(there[i], here[i]), relative * size) << "tensor " << i;
  }
}

double unit_of(at::ScalarType type) { return type == at::kFloat ? 1e-6 : 1.0 / 128; }

TEST(LayersOnDevice, NormaliseRows) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    for (const bool one_plus_weight : {false, true}) {
      for (const std::int64_t width : {8, 20, 300}) {
        const auto forward = [=](const std::vector<at::Tensor>& leaves) {
          return rms_norm(leaves[0], leaves[1], {1e-5, one_plus_weight});
        };
        const std::vector<std::int64_t> sizes{2, 5, width};
        expect_as_on_the_cpu({{normal_values(sizes, 1, type), normal_values({width}, 2, type)},
                              normal_values(sizes, 3, type),
                              forward},
                             2 * unit_of(type));
      }
    }
  }
}

// A frozen weight has no gradient; rows of a wider tensor are copied first.
TEST(LayersOnDevice, NormaliseRowsOfAFrozenWeightAndOfAPart) {
  const at::Tensor weight = normal_values({8}, 1);
  const at::Tensor whole = normal_values({6, 16}, 2);
  const auto forward = [&](const std::vector<at::Tensor>& leaves) {
    const at::Tensor own = on_device(weight, leaves[0].device());
    const at::Tensor result = rms_norm(leaves[0].narrow(1, 4, 8), own, {});
    EXPECT_FALSE(own.grad().defined());
    return result;
  };
  expect_as_on_the_cpu({{whole}, normal_values({6, 8}, 3), forward}, 1e-6);
}

TEST(LayersOnDevice, MultiplyGatedValues) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    for (const Activation activation :
         {Activation::gelu_erf, Activation::gelu_tanh, Activation::relu, Activation::silu}) {
      const std::vector<std::int64_t> sizes{2, 3, 24};
      const at::Tensor slope = normal_values(sizes, 3, type);
      const auto of_two = [=](const std::vector<at::Tensor>& leaves) {
        return gated_product(leaves[0], leaves[1], activation);
      };
      expect_as_on_the_cpu(
          {{normal_values(sizes, 1, type), normal_values(sizes, 2, type)}, slope, of_two},
          2 * unit_of(type));
      const auto of_halves = [=](const std::vector<at::Tensor>& leaves) {
        return gated_product(leaves[0], {}, activation);
      };
      expect_as_on_the_cpu({{normal_values({2, 3, 48}, 4, type)}, slope, of_halves},
                           2 * unit_of(type));
    }
  }
}

// Rounds as operators do: equal bits.
TEST(LayersOnDevice, RotateHeads) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    for (const RotaryPairs pairs : {RotaryPairs::halves, RotaryPairs::neighbours}) {
      for (const std::int64_t first : {0, 1}) {
        const at::Tensor angle = normal_values({2, 5, 8}, 1);
        const auto forward = [=](const std::vector<at::Tensor>& leaves) {
          // Heads among those of keys, as of one matrix for all.
          const at::Tensor part = leaves[0].narrow(2, first, 3);
          return rotate_heads(part, on_device(angle.cos(), part.device()),
                              on_device(angle.sin(), part.device()), pairs);
        };
        expect_as_on_the_cpu({{normal_values({2, 5, 4, 24}, 2, type)},
                              normal_values({2, 5, 3, 24}, 3, type),
                              forward},
                             0);
      }
    }
  }
}

// An expanded slope; and one factor that needs no gradient.
TEST(LayersOnDevice, TakeSlopesOfSumsAndConstants) {
  const at::Tensor weight = normal_values({16}, 1);
  const at::Tensor constant = normal_values({4, 16}, 2);
  const auto forward = [&](const std::vector<at::Tensor>& leaves) {
    const at::Device device = leaves[0].device();
    const at::Tensor normal = rms_norm(leaves[0], on_device(weight, device), {});
    return gated_product(normal, on_device(constant, device), Activation::silu).sum();
  };
  expect_as_on_the_cpu({{normal_values({4, 16}, 3)}, at::ones({}), forward}, 1e-5);
}

TEST(LayersOnDevice, GiveTheSameValuesWithoutGradients) {
  const at::Tensor values = on_device(normal_values({3, 16}, 1), kGpu);
  const at::Tensor weight = on_device(normal_values({16}, 2), kGpu).requires_grad_();
  const auto forward = [&] {
    return gated_product(rms_norm(values, weight, {}), values, Activation::silu).detach().cpu();
  };
  const at::Tensor with = forward();
  const at::NoGradGuard no_grad;
  EXPECT_TRUE(at::equal(forward(), with));
}

// The projection's gradients, too, which are added in place.
TEST(LayersOnDevice, HaveTheCrossEntropyOfTargets) {
  constexpr std::int64_t kTokens = 61;
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    const at::Tensor weight = normal_values({kTokens, 16}, 1, type);
    const at::Tensor hidden = normal_values({7, 16}, 2, type);
    const at::Tensor targets = at::arange(7).mul_(8);
    std::vector<CrossEntropyResult> results;
    std::vector<at::Tensor> sums;
    std::vector<at::Tensor> losses;
    for (const at::Device device : {at::Device(at::kCPU), kGpu}) {
      const Projection projection{on_device(weight, device), {}, 0};
      const at::Tensor sum = on_device(at::zeros({kTokens, 16}), device);
      const at::Tensor input = on_device(hidden, device);
      const at::Tensor places = on_device(targets, device);
      results.push_back(cross_entropy(projection, input, places, 0.5, {sum, {}, 0}));
      losses.push_back(cross_entropy_loss(projection, input, places));
      sums.push_back(sum);
    }
    const double unit = unit_of(type);
    EXPECT_LE(largest_difference(results[1].loss_sum.cpu(), results[0].loss_sum), 70 * 1e-6);
    EXPECT_TRUE(at::equal(losses[1].cpu(), results[1].loss_sum.cpu()));
    EXPECT_LE(largest_difference(results[1].hidden_gradient.cpu(), results[0].hidden_gradient),
              4 * unit);
    EXPECT_LE(largest_difference(sums[1].cpu(), sums[0]), 4 * unit);
  }
}

}  // namespace
}  // namespace strait::kernels

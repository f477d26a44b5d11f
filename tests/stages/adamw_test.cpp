#include "stages/adamw.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/random_key.h"

namespace strait::stages {
namespace {

constexpr double kRate = 0.01;

// One weight by the formulas, in double.
struct ScalarAdamW {
  double weight = 0;
  double first = 0;
  double second = 0;

  // `members` > 1: of its own gradient, whose noise the mean over members has less of.
  void update(double gradient, int made, const AdamWOptions& options, bool decays, double members) {
    first = options.beta1 * first + (1 - options.beta1) * gradient;
    second = options.beta2 * second + (1 - options.beta2) * gradient * gradient;
    const double power = std::pow(options.beta1, made);
    const double mean = first / (1 - power);
    double square = second / (1 - std::pow(options.beta2, made));
    if (members > 1) {
      const double others = 1 - 1 / members;
      const double left = (1 - options.beta1) / (1 + options.beta1) * (1 + power) / (1 - power);
      const double noise = made == 1 ? 0 : std::max(square - mean * mean, 0.0) / (1 - left);
      square = std::max(square - noise * others, square / members);
    }
    if (decays) weight *= 1 - kRate * options.weight_decay;
    weight -= kRate * mean / (std::sqrt(square) + options.epsilon);
  }
};

struct UpdateCase {
  at::ScalarType type = at::kFloat;
  sync::UpdateRule rule = sync::UpdateRule::adamw;
  std::size_t members = 1;
};

void PrintTo(const UpdateCase& one, std::ostream* to) {
  *to << at::toString(one.type) << (one.rule == sync::UpdateRule::adamw ? " adamw " : " own ")
      << one.members;
}

class AdamWUpdate : public testing::TestWithParam<UpdateCase> {};

TEST_P(AdamWUpdate, IsThatOfTheFormulas) {
  const at::NoGradGuard no_grad;
  at::Generator generator = kernels::keyed_generator(5, at::kCPU);
  const auto leaf = [&](at::IntArrayRef shape) {
    return at::randn(shape, generator).to(GetParam().type).requires_grad_();
  };
  const std::vector<models::Parameter> parameters = {{"matrix", leaf({3, 5})}, {"bias", leaf({7})}};
  const sync::Layout layout({{"matrix", {3, 5}}, {"bias", {7}}});
  std::vector<std::vector<ScalarAdamW>> expected;
  for (const models::Parameter& parameter : parameters) {
    const at::Tensor values = parameter.value.detach().to(at::kDouble).flatten();
    auto& scalars = expected.emplace_back(static_cast<std::size_t>(values.numel()));
    for (std::size_t i = 0; i < scalars.size(); ++i) {
      scalars[i].weight = values[static_cast<std::int64_t>(i)].item<double>();
    }
  }
  const AdamWOptions options{.weight_decay = 0.5};
  AdamW optimizer(parameters, layout, options);
  Gradients gradients(parameters, layout);
  const bool averages = GetParam().rule == sync::UpdateRule::own_gradient;
  for (int made = 1; made <= 3; ++made) {
    for (std::size_t p = 0; p < parameters.size(); ++p) {
      gradients[p].copy_(at::randn(gradients[p].sizes(), generator));
      const at::Tensor given = gradients[p].to(at::kDouble).flatten();
      for (std::size_t i = 0; i < expected[p].size(); ++i) {
        expected[p][i].update(given[static_cast<std::int64_t>(i)].item<double>(), made, options,
                              /*decays=*/p == 0,
                              averages ? static_cast<double>(GetParam().members) : 1);
      }
    }
    optimizer.update(gradients, kRate, GetParam().rule, GetParam().members);
    for (std::size_t p = 0; p < parameters.size(); ++p) {
      const AdamW::Slot& slot = optimizer.slots()[p];
      const at::Tensor masters = slot.master.flatten();
      for (std::size_t i = 0; i < expected[p].size(); ++i) {
        EXPECT_NEAR(masters[static_cast<std::int64_t>(i)].item<double>(), expected[p][i].weight,
                    1e-5)
            << slot.name << " " << i << ", update " << made;
      }
      EXPECT_EQ(slot.updates.item<double>(), made);
      EXPECT_TRUE(at::equal(parameters[p].value, slot.master.to(GetParam().type))) << slot.name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, AdamWUpdate,
                         testing::Values(UpdateCase{}, UpdateCase{.type = at::kBFloat16},
                                         UpdateCase{.members = 4},  // their gradient is one
                                         UpdateCase{.rule = sync::UpdateRule::own_gradient},
                                         UpdateCase{at::kFloat, sync::UpdateRule::own_gradient, 4},
                                         UpdateCase{at::kBFloat16, sync::UpdateRule::own_gradient,
                                                    4}));

}  // namespace
}  // namespace strait::stages

#include "stages/adamw.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "kernels/random.h"
#include "stages/stage_state.h"

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

// ---- rates by pattern

// A factor is that of the learning rate: of torch's groups with rates of their own.
TEST(AdamWRates, AreOfTheParametersThatMatch) {
  const at::NoGradGuard no_grad;
  const sync::Layout layout({{"up", {3, 5}}, {"up_bias", {7}}, {"down", {5, 3}}});
  const auto trained = [&](const AdamWOptions& options, double rate, std::size_t members) {
    const std::vector<models::Parameter> parameters = {{"up", at::ones({3, 5}).requires_grad_()},
                                                       {"up_bias", at::ones({7}).requires_grad_()},
                                                       {"down", at::ones({5, 3}).requires_grad_()}};
    AdamW optimizer(parameters, layout, options);
    Gradients gradients(parameters, layout);
    for (std::uint64_t step = 0; step < 3; ++step) {
      at::Generator generator = kernels::keyed_generator(step, at::kCPU);
      for (std::size_t p = 0; p < 3; ++p) {
        gradients[p].copy_(at::randn(gradients[p].sizes(), generator));
      }
      const auto rule = members > 1 ? sync::UpdateRule::own_gradient : sync::UpdateRule::adamw;
      optimizer.update(gradients, rate, rule, members);
    }
    std::vector<at::Tensor> masters;
    for (const AdamW::Slot& slot : optimizer.slots()) masters.push_back(slot.master.clone());
    return masters;
  };
  for (const MomentType moments : {MomentType::float32, MomentType::bfloat16}) {
    for (const std::size_t members : {1, 4}) {
      AdamWOptions options{.weight_decay = 0.5, .moments = moments};
      const auto plain = trained(options, kRate, members);
      const auto twice = trained(options, 2 * kRate, members);
      options.rates = {{"up.*", 2}, {"d.wn", 0}};
      const auto grouped = trained(options, kRate, members);
      EXPECT_TRUE(at::equal(grouped[0], twice[0]));
      EXPECT_TRUE(at::equal(grouped[1], twice[1]));
      EXPECT_TRUE(at::equal(grouped[2], at::ones({5, 3})));
      options.rates = {{"p.*", 2}};
      EXPECT_TRUE(at::equal(trained(options, kRate, members)[0], plain[0])) << "no whole name";
    }
  }
}

// ---- moments of few bits

struct Trained {
  explicit Trained(const AdamWOptions& options, std::int64_t values = 3 * kernels::kMomentBlock + 5)
      : parameters{{"matrix", at::zeros({values, 1}).requires_grad_()}},
        layout({{"matrix", {values, 1}}}),
        optimizer(parameters, layout, options),
        gradients(parameters, layout) {}

  // Gradients whose sizes differ by up to 1e3.
  void update(std::uint64_t number, std::size_t members = 1) {
    at::Generator generator = kernels::keyed_generator(number, at::kCPU);
    const at::Tensor sizes = at::logspace(-3, 0, gradients[0].numel()).view_as(gradients[0]);
    gradients[0].copy_(at::randn(gradients[0].sizes(), generator).add_(0.3).mul_(sizes));
    const auto rule = members > 1 ? sync::UpdateRule::own_gradient : sync::UpdateRule::adamw;
    optimizer.update(gradients, kRate, rule, members);
  }
  const at::Tensor& weights() const { return optimizer.slots().front().master; }

  std::vector<models::Parameter> parameters;
  sync::Layout layout;
  AdamW optimizer;
  Gradients gradients;
};

using NarrowMoments = testing::TestWithParam<std::tuple<MomentType, double, std::size_t>>;

// The way of each weight, which is long against its rounding errors, is that of exact moments.
TEST_P(NarrowMoments, GoTheWayOfWideOnes) {
  const at::NoGradGuard no_grad;
  const auto [type, beta2, members] = GetParam();
  AdamWOptions options{.beta2 = beta2, .weight_decay = 0};
  Trained wide(options);
  options.moments = type;
  Trained narrow(options);
  for (std::uint64_t i = 0; i < 400; ++i) {
    wide.update(i, members);
    narrow.update(i, members);
  }
  const at::Tensor apart = (narrow.weights() - wide.weights()).abs() / wide.weights().abs();
  EXPECT_LT(apart.mean().item<double>(), 0.05);
  EXPECT_LT(apart.max().item<double>(), 0.4);
}

TEST_P(NarrowMoments, GoOnFromACheckpointWithTheSameBits) {
  const at::NoGradGuard no_grad;
  const auto [type, beta2, members] = GetParam();
  const AdamWOptions options{.beta2 = beta2, .moments = type};
  Trained whole(options);
  Trained resumed(options);
  for (std::uint64_t i = 0; i < 3; ++i) whole.update(i, members);
  std::map<std::string, at::Tensor> saved;
  for (const tensors::NamedTensor& one : saved_tensors(whole.optimizer)) {
    saved[one.name] = one.tensor.clone();
  }
  restore(resumed.optimizer, [&](const std::string& name) { return saved.at(name); });
  for (std::uint64_t i = 3; i < 6; ++i) {
    whole.update(i, members);
    resumed.update(i, members);
  }
  EXPECT_TRUE(at::equal(resumed.weights(), whole.weights()));
}

TEST_P(NarrowMoments, AreTakenFromACheckpointOfAnyType) {
  const at::NoGradGuard no_grad;
  const auto [type, beta2, members] = GetParam();
  for (const MomentType other : {MomentType::float32, MomentType::bfloat16, MomentType::int8}) {
    Trained one({.moments = type});
    one.update(1);
    one.update(2);
    Trained two({.moments = other});
    std::map<std::string, at::Tensor> saved;
    for (const tensors::NamedTensor& tensor : saved_tensors(one.optimizer)) {
      saved[tensor.name] = tensor.tensor.clone();
    }
    restore(two.optimizer, [&](const std::string& name) { return saved.at(name); });
    const at::Tensor before = one.weights().clone();
    one.update(3);
    two.update(3);
    const at::Tensor apart = (two.weights() - one.weights()).abs();
    EXPECT_LT(apart.mean().item<double>(),
              0.05 * (one.weights() - before).abs().mean().item<double>());
  }
}

INSTANTIATE_TEST_SUITE_P(All, NarrowMoments,
                         testing::Combine(testing::Values(MomentType::bfloat16, MomentType::int8),
                                          testing::Values(0.95, 0.999), testing::Values(1U, 4U)));

}  // namespace
}  // namespace strait::stages

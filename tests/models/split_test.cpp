#include <gtest/gtest.h>

#include "tests/models/tiny_gpt2.h"

namespace strait::models {
namespace {

struct Outcome {
  at::Tensor hidden;                            // what the head's norm gives
  std::map<std::string, at::Tensor> gradients;  // by name; the head's side of a tie under "tied"
};

struct Sample {
  at::Tensor tokens;
  Pass pass;
};

Sample make_sample(bool packed) {
  Sample sample;
  sample.tokens = random_tokens(3, 16, 5);
  const std::vector<std::vector<std::int64_t>> one(3, {16});
  const std::vector<std::vector<std::int64_t>> several{{16}, {5, 7}, {1, 3, 12}};
  sample.pass = make_pass(packed ? several : one, 16);
  sample.pass.seed = 3;
  sample.pass.step = 9;
  sample.pass.micro_batch = 2;
  sample.pass.training = true;
  return sample;
}

// The slices one after the other, as pipeline stages would: only values and gradients cross.
Outcome run_slices(const DecoderConfig& values, const std::vector<LayerRange>& ranges,
                   const Sample& sample, bool recompute = false) {
  std::vector<std::unique_ptr<Model>> slices;
  std::vector<at::Tensor> inputs;
  std::vector<at::Tensor> outputs;
  at::Tensor carried = sample.tokens;
  for (const LayerRange& range : ranges) {
    slices.push_back(tiny_model(values, range));
    if (at::isFloatingType(carried.scalar_type())) carried = carried.detach().requires_grad_();
    inputs.push_back(carried);
    {
      const at::AutoGradMode mode(!recompute);
      carried = run_layers(*slices.back(), carried, sample.pass);
    }
    outputs.push_back(carried);
  }
  Outcome outcome{carried.detach(), {}};
  at::Tensor gradient = at::sin(outcome.hidden);
  // A gradient for the projection that is not its value's alone, as the loss would add it.
  const at::Tensor& projection = slices.back()->head()->projection().weight;
  projection.mutable_grad() = at::cos(projection.detach());
  for (std::size_t i = slices.size(); i-- > 0;) {
    if (recompute) outputs[i] = run_layers(*slices[i], inputs[i], sample.pass);
    torch::autograd::backward({outputs[i]}, {gradient});
    gradient = inputs[i].grad();
  }
  for (const auto& slice : slices) {
    for (const Parameter& parameter : slice->parameters()) {
      outcome.gradients[parameter.owned ? parameter.name : "tied"] = parameter.value.grad();
    }
  }
  return outcome;
}

void expect_same_bits(const Outcome& whole, const Outcome& split) {
  EXPECT_TRUE(at::equal(whole.hidden, split.hidden));
  ASSERT_EQ(whole.gradients.size(), split.gradients.size());
  for (const auto& [name, gradient] : whole.gradients) {
    ASSERT_TRUE(gradient.defined()) << name;
    EXPECT_TRUE(at::equal(gradient, split.gradients.at(name))) << name;
  }
}

const std::vector<std::vector<LayerRange>> kSplits{
    {{0, 2}, {3, 5}},
    {{0, 0}, {1, 5}},
    {{0, 4}, {5, 5}},
    {{0, 1}, {2, 3}, {4, 5}},
    {{0, 0}, {1, 1}, {2, 2}, {3, 3}, {4, 4}, {5, 5}},
};

TEST(Split, SlicesGiveTheBitsOfTheWhole) {
  for (const bool tied : {true, false}) {
    for (const bool packed : {false, true}) {
      for (const bool attention_dropout : {true, false}) {
        DecoderConfig values = tiny_values();
        values.tied = tied;
        values.scale_by_block_index = true;
        if (!attention_dropout) values.attention_dropout = 0;
        const Sample sample = make_sample(packed);
        const Outcome whole = run_slices(values, {all_layers(values)}, sample);
        for (std::size_t i = 0; i < kSplits.size(); ++i) {
          SCOPED_TRACE(testing::Message()
                       << "tied " << tied << ", packed " << packed << ", attention dropout "
                       << attention_dropout << ", split " << i);
          expect_same_bits(whole, run_slices(values, kSplits[i], sample));
        }
      }
    }
  }
}

TEST(Split, ARecomputedForwardGivesTheSameBits) {
  for (const double attention_dropout : {0.0, 0.1}) {
    DecoderConfig values = tiny_values();
    values.attention_dropout = attention_dropout;
    const Sample sample = make_sample(true);
    const Outcome kept = run_slices(values, {all_layers(values)}, sample);
    for (const std::vector<LayerRange>& split : kSplits) {
      expect_same_bits(kept, run_slices(values, split, sample, /*recompute=*/true));
    }
  }
}

TEST(Split, DropoutChangesWithEveryPartOfThePassAndNotWithoutTraining) {
  const DecoderConfig values = tiny_values();
  const auto model = tiny_model(values, all_layers(values));
  const at::NoGradGuard no_grad;
  const Sample sample = make_sample(false);
  const at::Tensor first = run_layers(*model, sample.tokens, sample.pass);
  for (std::uint64_t Pass::*part : {&Pass::seed, &Pass::step, &Pass::micro_batch}) {
    Pass other = sample.pass;
    ++(other.*part);
    EXPECT_FALSE(at::equal(first, run_layers(*model, sample.tokens, other)));
    other.training = false;
    Pass evaluation = sample.pass;
    evaluation.training = false;
    EXPECT_TRUE(at::equal(run_layers(*model, sample.tokens, evaluation),
                          run_layers(*model, sample.tokens, other)));
  }
}

TEST(TiedWeight, SidesShareMemoryButNotGradientsInOneSlice) {
  const DecoderConfig values = tiny_values();
  const auto model = tiny_model(values, all_layers(values));
  const TiedWeight& tied = model->tied();
  EXPECT_EQ(tied.name, "transformer.wte.weight");
  EXPECT_EQ(tied.embedding.data_ptr(), tied.head.data_ptr());
  EXPECT_FALSE(tied.embedding.is_same(tied.head));
  EXPECT_TRUE(tied.head.is_same(model->head()->projection().weight));
  tied.head.mutable_grad() = at::ones_like(tied.head);
  EXPECT_FALSE(tied.embedding.grad().defined());
  EXPECT_TRUE(tied.embedding.is_leaf() && tied.head.is_leaf());
}

TEST(TiedWeight, IsOwnedOnceAndKnownOnBothStages) {
  const DecoderConfig values = tiny_values();
  const auto first = tiny_model(values, {0, 2});
  const auto last = tiny_model(values, {3, 5});
  EXPECT_TRUE(first->tied().embedding.defined());
  EXPECT_FALSE(first->tied().head.defined());
  EXPECT_EQ(first->head(), nullptr);
  EXPECT_FALSE(last->tied().embedding.defined());
  EXPECT_TRUE(last->tied().head.defined());
  EXPECT_EQ(first->tied().name, last->tied().name);
  int owners = 0;
  int others = 0;
  for (const Model* slice : {first.get(), last.get()}) {
    for (const Parameter& parameter : slice->parameters()) {
      if (parameter.name == first->tied().name) ++(parameter.owned ? owners : others);
    }
  }
  EXPECT_EQ(owners, 1);
  EXPECT_EQ(others, 1);
}

TEST(TiedWeight, IsAbsentWhereNothingIsTied) {
  DecoderConfig values = tiny_values();
  values.tied = false;
  const auto model = tiny_model(values, all_layers(values));
  EXPECT_TRUE(model->tied().name.empty());
  EXPECT_FALSE(model->tied().embedding.defined());
  EXPECT_EQ(model->parameters().back().name, "lm_head.weight");
  EXPECT_TRUE(model->parameters().back().owned);
}

}  // namespace
}  // namespace strait::models

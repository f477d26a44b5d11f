#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "tests/stages/compare_runs.h"

namespace strait::stages {
namespace {

using testing::IsEmpty;
using testing::Pointwise;

RunSettings replicated(const std::string& method, int stages, int replicas) {
  RunSettings settings;
  settings.blocks = stages == 1 ? std::vector<std::pair<int, int>>{{0, 3}}
                                : std::vector<std::pair<int, int>>{{0, 1}, {2, 3}};
  settings.replicas = replicas;
  settings.micro_batches = 12 / (replicas * settings.rows);
  settings.steps = 12;
  settings.sync.method = method;
  settings.sync.every = 4;
  settings.sync.fragments = 2;
  settings.evaluate = true;
  return settings;
}

class EveryMethod : public testing::TestWithParam<std::tuple<std::string, int>> {};

TEST_P(EveryMethod, ResumesFromCheckpointBitForBit) {
  const auto& [method, stages] = GetParam();
  const RunSettings whole = replicated(method, stages, 3);
  const RunResult uninterrupted = run_stages(whole);
  ASSERT_THAT(uninterrupted.errors, IsEmpty());
  EXPECT_LT(uninterrupted.losses.back(), uninterrupted.losses.front());

  for (const int middle : {3, 6}) {
    SCOPED_TRACE(middle);
    RunSettings first = whole;
    first.stop_at = middle;
    first.checkpoint_every = middle;
    const RunResult half = run_stages(first);
    ASSERT_THAT(half.errors, IsEmpty());
    ASSERT_EQ(half.steps, middle);
    RunSettings checked = whole;  // whatever a checkpoint does to rounds, it does to both
    checked.checkpoint_every = middle;
    const RunResult expected = run_stages(checked);
    const RunResult resumed = run_stages(checked, half.saved, middle);
    ASSERT_THAT(resumed.errors, IsEmpty());
    expect_same_tensors(expected.saved, resumed.saved);
    const std::vector<double> tail(expected.losses.begin() + middle, expected.losses.end());
    EXPECT_EQ(resumed.losses, tail);
  }
}

// A round that is applied for a checkpoint changes bfloat16 parameters, too, not only masters.
TEST(Replicas, Bfloat16ParametersFollowMastersAtCheckpoint) {
  RunSettings whole = replicated("streaming_diloco", 1, 3);
  whole.bfloat16 = true;
  whole.sync.late = 2;
  whole.learning_rate = 1e-2;
  whole.evaluate = false;
  whole.checkpoint_every = 3;
  RunSettings first = whole;
  first.stop_at = 3;
  const RunResult half = run_stages(first);
  const RunResult expected = run_stages(whole);
  const RunResult resumed = run_stages(whole, half.saved, 3);
  ASSERT_THAT(resumed.errors, IsEmpty());
  expect_same_tensors(expected.saved, resumed.saved);
  EXPECT_EQ(resumed.losses, std::vector(expected.losses.begin() + 3, expected.losses.end()));
}

TEST_P(EveryMethod, IsDeterministic) {
  const auto& [method, stages] = GetParam();
  const RunSettings settings = replicated(method, stages, 2);
  const RunResult once = run_stages(settings);
  const RunResult again = run_stages(settings);
  ASSERT_THAT(once.errors, IsEmpty());
  EXPECT_EQ(once.losses, again.losses);
  EXPECT_EQ(once.evaluations, again.evaluations);
  expect_same_tensors(once.saved, again.saved);
}

// Every method on one and on two stages; without campaigns on one of the two.
std::vector<std::tuple<std::string, int>> methods_on_stages() {
  std::vector<std::tuple<std::string, int>> shapes;
  int chosen = 1;
  for (const std::string& method : sync::method_names()) {
    chosen = 3 - chosen;
    for (const int stages : {1, 2}) {
      if (campaigns() || stages == chosen) shapes.emplace_back(method, stages);
    }
  }
  return shapes;
}

INSTANTIATE_TEST_SUITE_P(, EveryMethod, testing::ValuesIn(methods_on_stages()),
                         [](const auto& name) {
                           return std::get<0>(name.param) + "_" +
                                  std::to_string(std::get<1>(name.param)) + "_stages";
                         });

// Without shuffling, a step of all replicas has the same rows as a step of one replica.
TEST(Replicas, AllreduceEqualsOneReplicaWithAllRows) {
  for (const int stages : {1, 2}) {
    for (const int replicas : {2, 3, 6}) {
      SCOPED_TRACE(testing::Message() << stages << " stages, " << replicas << " replicas");
      RunSettings many = replicated("allreduce", stages, replicas);
      RunSettings one = replicated("allreduce", stages, 1);
      many.dropout = one.dropout = 0;
      many.shuffle = one.shuffle = false;
      const RunResult expected = run_stages(one);
      const RunResult got = run_stages(many);
      ASSERT_THAT(got.errors, IsEmpty());
      EXPECT_THAT(got.losses, Pointwise(testing::DoubleNear(2e-5), expected.losses));
      EXPECT_THAT(got.norms, Pointwise(testing::DoubleNear(2e-4), expected.norms));
      EXPECT_THAT(got.evaluations, Pointwise(testing::DoubleNear(2e-5), expected.evaluations));
      for (int replica = 1; replica < replicas; ++replica) {
        expect_same_tensors(got.masters[0], got.masters[static_cast<std::size_t>(replica)]);
      }
    }
  }
}

// The micro-batches of a step are divided in any way.
TEST(Replicas, AllreduceWithUnequalRowsEqualsOneReplicaWithAllRows) {
  for (const int stages : {1, 2}) {
    for (const std::vector<std::int64_t>& rows : {std::vector<std::int64_t>{5, 1}, {1, 3, 2}}) {
      SCOPED_TRACE(testing::Message() << stages << " stages, " << rows.size() << " replicas");
      RunSettings many = replicated("allreduce", stages, static_cast<int>(rows.size()));
      RunSettings one = replicated("allreduce", stages, 1);
      many.unequal = rows;
      many.dropout = one.dropout = 0;
      many.shuffle = one.shuffle = false;
      const RunResult expected = run_stages(one);
      const RunResult got = run_stages(many);
      ASSERT_THAT(got.errors, IsEmpty());
      EXPECT_THAT(got.losses, Pointwise(testing::DoubleNear(2e-5), expected.losses));
      EXPECT_THAT(got.norms, Pointwise(testing::DoubleNear(2e-4), expected.norms));
      EXPECT_THAT(got.evaluations, Pointwise(testing::DoubleNear(2e-5), expected.evaluations));
      expect_same_tensors(got.masters[0], got.masters[1]);
    }
  }
}

TEST(Replicas, WithUnequalRowsResumeFromCheckpointBitForBit) {
  for (const std::string& method : sync::method_names()) {
    const sync::MethodOffer& offer = sync::methods().named(method);
    sync::SyncSettings settings;
    settings.method = method;
    if (!offer.weighs_rows && !offer.make(settings)->traits.sums_gradients) continue;
    SCOPED_TRACE(method);
    RunSettings whole = replicated(method, 2, 3);
    whole.unequal = {3, 1, 2};
    whole.checkpoint_every = 6;
    RunSettings half = whole;
    half.stop_at = 6;
    const RunResult there = run_stages(half);
    ASSERT_THAT(there.errors, IsEmpty());
    const RunResult expected = run_stages(whole);
    EXPECT_LT(expected.losses.back(), expected.losses.front());
    const RunResult resumed = run_stages(whole, there.saved, 6);
    ASSERT_THAT(resumed.errors, IsEmpty());
    expect_same_tensors(expected.saved, resumed.saved);
    EXPECT_EQ(resumed.losses, std::vector(expected.losses.begin() + 6, expected.losses.end()));
  }
}

// Where replicas share memory and no links carry their gradients.
RunSettings in_group(RunSettings settings) {
  settings.group.groups = {{}};
  for (int i = 0; i < settings.replicas; ++i) {
    settings.group.groups[0].push_back(static_cast<std::uint32_t>(i));
  }
  settings.group.limits.setup = std::chrono::seconds(20);
  return settings;
}

TEST(Replicas, SumsInSharedMemoryHaveBitsOfSumsOverLinks) {
  for (const int stages : {1, 2}) {
    RunSettings settings = replicated("allreduce", stages, 3);
    settings.steps = 4;
    const RunResult expected = run_stages(settings);
    const RunResult got = run_stages(in_group(settings));
    ASSERT_THAT(got.errors, IsEmpty());
    EXPECT_EQ(got.losses, expected.losses);
    EXPECT_EQ(got.norms, expected.norms);
    EXPECT_EQ(got.evaluations, expected.evaluations);
    for (std::size_t replica = 0; replica < 3; ++replica) {
      expect_same_tensors(got.masters[replica], expected.masters[replica]);
    }
  }
}

// One that was saved over links, too: the state is the same.
TEST(Replicas, OfGroupResumeFromCheckpoint) {
  RunSettings whole = replicated("allreduce", 1, 2);
  whole.steps = 4;
  RunSettings half = whole;
  half.stop_at = 2;
  const RunResult there = run_stages(half);
  const RunResult expected = run_stages(whole);
  const RunResult resumed = run_stages(in_group(whole), there.saved, 2);
  ASSERT_THAT(resumed.errors, IsEmpty());
  expect_same_tensors(resumed.saved, expected.saved);
}

TEST(Replicas, OfGroupEndWithOneThatDies) {
  RunSettings settings = in_group(replicated("allreduce", 1, 3));
  settings.before = [](Stage&, std::size_t process, const Phase& phase, const schedules::Action&) {
    if (process == 1 && number(phase.step) == 2) throw std::runtime_error("killed");
  };
  const RunResult got = run_stages(settings);
  EXPECT_THAT(got.errors, testing::UnorderedElementsAre(testing::HasSubstr("killed"),
                                                        testing::HasSubstr("ended the link"),
                                                        testing::HasSubstr("ended the link")));
  EXPECT_EQ(got.losses.size(), 2);
}

// So many groups of two replicas, with a row each; and as many replicas with these two rows, one
// after the other. Replicas take rows in turns, so the members of a group are `groups` apart.
RunSettings in_pairs(const std::string& method, int stages, int groups) {
  RunSettings settings = replicated(method, stages, 2 * groups);
  settings.micro_batches = 1;
  settings.rows = 1;
  // One stage adds the two gradients of a tied weight after those of all micro-batches; and the
  // norms of more replicas are added in another order.
  settings.tied = false;
  settings.clip = 0;
  settings.evaluate = false;
  for (int i = 0; i < groups; ++i) {
    const auto first = static_cast<std::uint32_t>(i);
    settings.group.groups.push_back({first, first + static_cast<std::uint32_t>(groups)});
  }
  settings.group.limits.setup = std::chrono::seconds(20);
  return settings;
}

RunSettings of_pairs(RunSettings settings) {
  settings.replicas /= 2;
  settings.micro_batches *= 2;
  settings.group = {};
  return settings;
}

// The order of summation is that: the members of each group, then the groups. A replica adds its
// micro-batches in their order, too, so a pair has the bits of one replica with the rows of both.
TEST_P(EveryMethod, TreatsGroupAsReplicaWithRowsOfItsMembers) {
  const auto& [method, stages] = GetParam();
  for (const int groups : {2, 3}) {
    SCOPED_TRACE(groups);
    RunSettings settings = in_pairs(method, stages, groups);
    settings.shuffle = false;
    settings.dropout = 0;
    const RunResult got = run_stages(settings);
    ASSERT_THAT(got.errors, IsEmpty());
    const RunResult expected = run_stages(of_pairs(settings));
    ASSERT_THAT(expected.errors, IsEmpty());
    EXPECT_THAT(got.losses, Pointwise(testing::DoubleNear(1e-9), expected.losses));
    EXPECT_LT(got.losses.back(), got.losses.front());
    for (std::size_t i = 0; i < got.masters.size(); ++i) {
      SCOPED_TRACE(i);
      const std::size_t group = i % static_cast<std::size_t>(groups);
      expect_same_tensors(got.masters[i], expected.masters[group]);
      expect_same_tensors(got.models[i], expected.models[group]);
    }
  }
}

// Also when the process that leads a group is another one than before: all members have its state.
TEST_P(EveryMethod, ResumesFromCheckpointOfGroupsBitForBit) {
  const auto& [method, stages] = GetParam();
  RunSettings whole = in_pairs(method, stages, 2);
  whole.evaluate = true;
  whole.checkpoint_every = 5;
  RunSettings half = whole;
  half.stop_at = 5;
  const RunResult there = run_stages(half);
  ASSERT_THAT(there.errors, IsEmpty());
  for (const auto& [name, tensor] : there.saved) {
    EXPECT_FALSE(name.starts_with("replica-2/") || name.starts_with("replica-3/")) << name;
  }
  const RunResult expected = run_stages(whole);
  const RunResult resumed = run_stages(whole, there.saved, 5);
  ASSERT_THAT(resumed.errors, IsEmpty());
  expect_same_tensors(expected.saved, resumed.saved);
  EXPECT_EQ(resumed.losses, std::vector(expected.losses.begin() + 5, expected.losses.end()));
}

// A longer run may begin with momentum where the shorter one had none.
TEST(Replicas, GoOnWithMomentumThatTheirCheckpointLacks) {
  RunSettings brief = replicated("cocktail", 1, 2);
  brief.steps = 5;
  brief.sync.outer_momentum = 0;
  const RunResult there = run_stages(brief);
  ASSERT_THAT(there.errors, IsEmpty());
  RunSettings longer = replicated("cocktail", 1, 2);
  longer.steps = 8;
  const RunResult resumed = run_stages(longer, there.saved, 5);
  ASSERT_THAT(resumed.errors, IsEmpty());
  EXPECT_EQ(resumed.losses.size(), 3U);
  const auto has_momentum = [](const auto& saved) {
    return std::ranges::any_of(
        saved, [](const auto& one) { return one.first.starts_with("replica-0/outer/"); });
  };
  EXPECT_FALSE(has_momentum(there.saved));
  EXPECT_TRUE(has_momentum(resumed.saved));
}

// Nothing is left to a method.
TEST(Replicas, OfOneGroupTrainAsByExactSumsWithAnyMethod) {
  RunSettings sums = in_group(replicated("allreduce", 1, 3));
  sums.steps = 4;
  const RunResult expected = run_stages(sums);
  for (const std::string& method : sync::method_names()) {
    SCOPED_TRACE(method);
    RunSettings settings = sums;
    settings.sync.method = method;
    const RunResult got = run_stages(settings);
    ASSERT_THAT(got.errors, IsEmpty());
    EXPECT_EQ(got.losses, expected.losses);
    EXPECT_EQ(got.evaluations, expected.evaluations);
    expect_same_tensors(got.saved, expected.saved);
  }
}

TEST(Replicas, OfSeparateGroupsTrainAsWithoutGroups) {
  for (const std::string& method : sync::method_names()) {
    SCOPED_TRACE(method);
    RunSettings settings = replicated(method, 1, 3);
    settings.steps = 6;
    const RunResult expected = run_stages(settings);
    settings.group.groups = {{0}, {1}, {2}};
    const RunResult got = run_stages(settings);
    ASSERT_THAT(got.errors, IsEmpty());
    EXPECT_EQ(got.losses, expected.losses);
    expect_same_tensors(got.saved, expected.saved);
  }
}

// Sums of gradients need no groups of one size.
TEST(Replicas, OfUnequalGroupsSumAllGradients) {
  RunSettings settings = replicated("allreduce", 1, 3);
  settings.steps = 4;
  settings.dropout = 0;
  const RunResult expected = run_stages(settings);
  settings.group.groups = {{0, 2}, {1}};
  const RunResult got = run_stages(settings);
  ASSERT_THAT(got.errors, IsEmpty());
  EXPECT_THAT(got.losses, Pointwise(testing::DoubleNear(2e-5), expected.losses));
  expect_same_tensors(got.masters[0], got.masters[1]);
  expect_same_tensors(got.masters[0], got.masters[2]);
}

// Whichever dies: a leader, or one that follows.
TEST(Replicas, OfSeveralGroupsEndWithOneThatDies) {
  for (const std::size_t victim : {0U, 2U}) {
    SCOPED_TRACE(victim);
    RunSettings settings = in_pairs("cocktail", 1, 2);
    settings.before = [victim](Stage&, std::size_t process, const Phase& phase,
                               const schedules::Action&) {
      if (process == victim && number(phase.step) == 2) throw std::runtime_error("killed");
    };
    const RunResult got = run_stages(settings);
    EXPECT_EQ(got.errors.size(), 4);
    EXPECT_THAT(got.errors, testing::Contains(testing::HasSubstr("killed")));
    EXPECT_LE(got.curves[1].size(), 3);
  }
}

TEST(Replicas, OfSeveralGroupsFindForksWithinOne) {
  RunSettings settings = in_pairs("cocktail", 1, 2);
  settings.before = [](Stage& stage, std::size_t process, const Phase& phase,
                       const schedules::Action& action) {
    const bool here = process == 3 && number(phase.step) == 1 && phase.training;
    if (!here || action.work != schedules::Work::forward) return;
    const at::NoGradGuard no_grad;
    for (const AdamW::Slot& slot : stage.optimizer().slots()) slot.master.add_(1e-3);
  };
  const RunResult got = run_stages(settings);
  EXPECT_THAT(got.errors,
              testing::Contains(testing::AllOf(testing::HasSubstr("their states have forked"),
                                               testing::HasSubstr("replicas 1 and 3"))));
}

// Two models that differ are not trained on by the sums of both.
TEST(Replicas, OfGroupFindForks) {
  RunSettings settings = in_group(replicated("allreduce", 1, 2));
  settings.before = [](Stage& stage, std::size_t process, const Phase& phase,
                       const schedules::Action& action) {
    const bool here = process == 1 && number(phase.step) == 1 && phase.training;
    if (!here || action.work != schedules::Work::forward) return;
    const at::NoGradGuard no_grad;
    for (const AdamW::Slot& slot : stage.optimizer().slots()) slot.master.add_(1e-3);
  };
  const RunResult got = run_stages(settings);
  ASSERT_FALSE(got.errors.empty());
  EXPECT_THAT(got.errors, testing::Contains(testing::HasSubstr("their states have forked")));
}

// Distance of the weights from those after the first step, over all coordinates.
double way_of(const RunSettings& settings) {
  RunSettings still = settings;
  still.steps = 1;
  const RunResult one = run_stages(still);
  const RunResult got = run_stages(settings);
  double way = 0;
  for (const auto& [name, tensor] : got.models[0]) {
    way += (tensor - one.models[0].at(name)).abs().sum().item<double>();
  }
  return way;
}

// At the same learning rate, with as few as two rows per replica.
TEST(Replicas, OwnGradientsLearnAsFastAsSummedOnes) {
  const auto settings = [](const std::string& method) {
    RunSettings small = replicated(method, 1, 6);
    small.dropout = 0;
    small.learning_rate = 1e-4;
    small.steps = 40;
    small.evaluate = false;
    small.sync.random = small.sync.top = 1;
    small.sync.bits = 8;
    return small;
  };
  const double together = way_of(settings("allreduce"));
  const double apart = way_of(settings("cocktail"));
  EXPECT_NEAR(apart / together, 1, 0.12);
}

TEST(Replicas, OnlyStageOfLmHeadSyncsTiedWeight) {
  for (const std::string& method : sync::method_names()) {
    SCOPED_TRACE(method);
    const RunResult got = run_stages(replicated(method, 2, 3));
    ASSERT_THAT(got.errors, IsEmpty());
    for (const Tensors& model : got.models) {
      EXPECT_FALSE(model.contains("transformer.wte.weight of stage 0"));
      EXPECT_TRUE(model.contains("transformer.wte.weight of stage 1"));
    }
  }
}

// The loss of replica 2's step 2 is not a number.
RunSettings skips_once(const std::string& method) {
  RunSettings settings = replicated(method, 2, 3);
  const auto was = std::make_shared<std::optional<float>>();  // until it is put back
  const auto is_here = [](std::size_t process, const Phase& phase,
                          const schedules::Action& action) {
    return process == 5 && number(phase.step) == 2 && phase.training &&
           action.work == schedules::Work::forward;
  };
  settings.before = [=](Stage& stage, std::size_t process, const Phase& phase,
                        const schedules::Action& action) {
    if (!is_here(process, phase, action)) return;
    const at::NoGradGuard no_grad;
    const at::Tensor weight = stage.optimizer().slots().front().master.view({-1})[0];
    if (!*was) *was = weight.item<float>();
    weight.fill_(std::numeric_limits<float>::quiet_NaN());
  };
  settings.after = [=](Stage& stage, std::size_t process, const Phase& phase,
                       const schedules::Action& action) {
    if (!is_here(process, phase, action)) return;
    const at::NoGradGuard no_grad;
    stage.optimizer().slots().front().master.view({-1})[0] = **was;
  };
  return settings;
}

TEST(Replicas, StepSkippedByOneReplicaIsSkippedByAll) {
  for (const std::string method : {"allreduce", "powersgd", "onebit_adam"}) {
    SCOPED_TRACE(method);
    const RunResult got = run_stages(skips_once(method));
    ASSERT_THAT(got.errors, IsEmpty());
    EXPECT_TRUE(got.skips[2]);
    EXPECT_FALSE(got.skips[3]);
  }
}

// All hold back the checkpoint that is due after that step.
TEST(Replicas, ReplicaThatTrainsApartSkipsStepAlone) {
  for (const std::string method : {"cocktail", "diloco", "noloco"}) {
    SCOPED_TRACE(method);
    RunSettings settings = skips_once(method);
    settings.steps = 6;
    settings.checkpoint_every = 3;
    std::mutex mutex;
    std::multiset<std::int64_t> saved;
    settings.at_checkpoint = [&](Stage&, std::size_t, store::Step made) {
      const std::lock_guard lock(mutex);
      saved.insert(number(made));
    };
    const RunResult got = run_stages(settings);
    ASSERT_THAT(got.errors, IsEmpty());
    for (std::size_t replica = 0; replica < 3; ++replica) {
      EXPECT_EQ(std::isfinite(got.curves[replica][2]), replica != 2);
      EXPECT_TRUE(std::isfinite(got.curves[replica][3]));
      expect_same_tensors(got.models[0], got.models[replica]);
    }
    EXPECT_EQ(saved.count(3), 0U);
    EXPECT_EQ(saved.count(4), 6U);
  }
}

}  // namespace
}  // namespace strait::stages

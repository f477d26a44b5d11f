#include "launcher/planner/planned_group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "framework/sync/methods.h"
#include "launcher/base/errors.h"
#include "launcher/planner/planned_sync.h"
#include "tests/refusal_of.h"

namespace strait::planner {
namespace {

using sync::ReplicaGroups;
using testing::AllOf;
using testing::HasSubstr;

using Gpus = std::optional<std::vector<std::int64_t>>;
const Gpus kOneGpu = std::vector<std::int64_t>{std::int64_t{80} << 30};
const Gpus kNoGpu = std::vector<std::int64_t>{};

// `hosts`: of each process, by replica, then by stage.
plan::Plan plan_of(const std::string& method, std::int64_t stages,
                   const std::vector<std::size_t>& hosts, const Gpus& gpus = std::nullopt) {
  plan::Plan plan;
  plan.recipe.pipeline.stages = stages;
  plan.recipe.pipeline.replicas = std::ssize(hosts) / stages;
  plan.recipe.sync.method = plan.sync_method = method;
  plan.hosts = {
      {.name = "a", .gpus = gpus}, {.name = "b", .gpus = gpus}, {.name = "c", .gpus = gpus}};
  plan.steps = 100;
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    plan::Plan::Process process;
    process.name = {static_cast<std::uint32_t>(i) % static_cast<std::uint32_t>(stages),
                    static_cast<std::uint32_t>(i) / static_cast<std::uint32_t>(stages)};
    process.host_index = hosts[i];
    plan.processes.push_back(process);
  }
  return plan;
}

plan::Plan with(plan::Plan plan, recipe::GroupUse use) {
  plan.recipe.sync.group = use;
  return plan;
}

ReplicaGroups groups(const plan::Plan& plan, std::uint32_t stage = 0) {
  return groups_with(plan, plan.sync_method, stage);
}

std::string refusal_of_groups(plan::Plan plan) {
  return refusal_of<base::UserError>([&] { plan_groups(plan, nullptr); });
}

TEST(PlannedGroup, ReplicasThatStayEqualBitByBitComputeOnOneKindOfDevice) {
  const auto refusal = [](const plan::Plan& plan) {
    return refusal_of<base::UserError>([&] { check_replica_devices(plan); });
  };
  const std::string kNothing = "nothing was refused";
  for (const std::string method : {"allreduce", "bytegrad", "powersgd", "onebit_adam"}) {
    plan::Plan plan = plan_of(method, 2, {0, 1, 2, 1}, kOneGpu);
    EXPECT_EQ(refusal(plan), kNothing);
    plan.hosts[1].gpus = kNoGpu;  // all of stage 1
    EXPECT_EQ(refusal(plan), kNothing);
    plan.hosts[2].gpus = std::nullopt;
    EXPECT_EQ(refusal(plan), kNothing) << "not known yet";
    plan.hosts[2].gpus = kNoGpu;
    EXPECT_THAT(refusal(plan),
                AllOf(HasSubstr("computes on a GPU (host a)"), HasSubstr("on a CPU (host c)"),
                      HasSubstr(method + " keeps their weights equal")));
    plan.recipe.model.device = recipe::Device::cpu;
    EXPECT_EQ(refusal(plan), kNothing);
  }
  for (const std::string method : {"cocktail", "diloco"}) {
    plan::Plan plan = plan_of(method, 1, {0, 1}, kOneGpu);
    plan.hosts[1].gpus = kNoGpu;
    EXPECT_EQ(refusal(plan), kNothing);
  }
  plan::Plan plan = plan_of("allreduce", 1, {0, 1, 2}, kNoGpu);
  plan.hosts[1].processor = "x86-64 with AVX2";  // the first host is not there
  plan.hosts[2].processor = "aarch64";
  EXPECT_THAT(refusal(plan),
              AllOf(HasSubstr("stage 0.1 computes on a CPU (x86-64 with AVX2) (host b)"),
                    HasSubstr("stage 0.2 on a CPU (aarch64) (host c)"),
                    HasSubstr("use hosts of one kind, or another sync.method")));
  plan.hosts[2].processor = plan.hosts[1].processor;
  EXPECT_EQ(refusal(plan), kNothing);
}

const ReplicaGroups kTwo = {{0}, {1}};
const ReplicaGroups kPairs = {{0, 1}, {2, 3}};
const ReplicaGroups kFour = {{0}, {1}, {2}, {3}};

TEST(PlannedGroup, IsOfReplicasThatShareHostForAnyMethodBetweenHosts) {
  for (const std::string& method : sync::method_names()) {
    if (method == "allreduce") continue;
    SCOPED_TRACE(method);
    for (const Gpus& gpus : {Gpus(), kNoGpu, kOneGpu}) {
      EXPECT_EQ(groups(plan_of(method, 1, {0, 0, 1, 1}, gpus)), kPairs);
    }
    // Also if a pipeline is spread over hosts, as long as another one is over the same.
    EXPECT_EQ(groups(plan_of(method, 2, {0, 1, 0, 1, 1, 2, 1, 2}), 1), kPairs);
    EXPECT_EQ(groups(plan_of(method, 2, {0, 1, 0, 2, 1, 2, 1, 0}), 0), kFour);
    EXPECT_EQ(groups(plan_of(method, 1, {0, 1})), kTwo);
  }
}

// In a trial on one machine a method does what it would do between hosts.
TEST(PlannedGroup, OfMethodOnOneHostIsMadeOnlyIfAskedFor) {
  const plan::Plan plan = plan_of("cocktail", 1, {0, 0});
  EXPECT_EQ(groups(plan), kTwo);
  EXPECT_EQ(groups(with(plan, recipe::GroupUse::always)), (ReplicaGroups{{0, 1}}));
}

TEST(PlannedGroup, OfExactSumsIsMadeBetweenGpusAndOnCpusIfAskedFor) {
  EXPECT_EQ(groups(plan_of("allreduce", 1, {0, 0, 1, 1}, kOneGpu)), kPairs);
  EXPECT_EQ(groups(plan_of("allreduce", 1, {0, 0}, kOneGpu)), (ReplicaGroups{{0, 1}}));
  // Not known: tried when the run starts, and nothing that a choice of a method counts on.
  EXPECT_EQ(groups(plan_of("allreduce", 1, {0, 0})), kTwo);
  // The bits of one replica with all rows.
  EXPECT_EQ(groups(plan_of("allreduce", 1, {0, 0, 1, 1}, kNoGpu)), kFour);
  EXPECT_EQ(groups(plan_of("allreduce", 1, {0, 0}, kNoGpu)), kTwo);
  // Not known: the sums would be over links on some hosts and not on others.
  EXPECT_EQ(groups(plan_of("allreduce", 1, {0, 0, 1, 1})), kFour);
  const auto always = recipe::GroupUse::always;
  EXPECT_EQ(groups(with(plan_of("allreduce", 1, {0, 0, 1, 1}, kNoGpu), always)), kPairs);
  EXPECT_EQ(groups(with(plan_of("allreduce", 1, {0, 1}, kOneGpu), always)),
            (ReplicaGroups{{0, 1}}));
  // By stages: replicas of one stage may share a host while replicas of another do not.
  const plan::Plan apart = plan_of("allreduce", 2, {0, 0, 0, 1}, kOneGpu);
  EXPECT_EQ(groups(apart, 0), (ReplicaGroups{{0, 1}}));
  EXPECT_EQ(groups(apart, 1), kTwo);
}

TEST(PlannedGroup, IsNotMadeIfForbiddenOrWhereReplicasMayLeave) {
  plan::Plan plan = plan_of("cocktail", 1, {0, 0, 1, 1});
  EXPECT_EQ(groups(with(plan, recipe::GroupUse::never)), kFour);
  plan.recipe.sync.on_loss = recipe::LossRule::continue_run;
  EXPECT_EQ(groups(plan), kFour);
}

TEST(PlannedGroup, OfUnequalHostsIsForSumsOfGradientsOnly) {
  const ReplicaGroups unequal = {{0, 1}, {2}};
  EXPECT_EQ(groups(plan_of("bytegrad", 1, {0, 0, 1})), unequal);
  EXPECT_EQ(groups(plan_of("allreduce", 1, {0, 0, 1}, kOneGpu)), unequal);
  const plan::Plan averaged = plan_of("diloco", 1, {0, 0, 1});
  EXPECT_EQ(groups(averaged), sync::separate_replicas(3));
  EXPECT_EQ(refusal_of_groups(averaged), "nothing was refused");
  EXPECT_THAT(refusal_of_groups(with(averaged, recipe::GroupUse::always)),
              AllOf(HasSubstr("sync.group is \"always\""), HasSubstr("with 2 and with 1 replicas"),
                    HasSubstr("leave sync.group at \"auto\"")));
}

TEST(PlannedGroup, ThatIsImpossibleIsRefused) {
  const auto always = recipe::GroupUse::always;
  EXPECT_THAT(refusal_of_groups(with(plan_of("allreduce", 1, {0, 1}, kNoGpu), always)),
              HasSubstr("CPUs of several hosts"));
  EXPECT_THAT(refusal_of_groups(with(plan_of("cocktail", 1, {0, 1}), always)),
              HasSubstr("no two replicas have all of their stages on the same hosts"));
  plan::Plan plan = with(plan_of("cocktail", 1, {0, 0}), always);
  plan.recipe.sync.on_loss = recipe::LossRule::continue_run;
  try {
    check_group(plan);
    ADD_FAILURE() << "a group of replicas that may leave";
  } catch (const base::UserError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("sync.on_loss is \"continue\""),
                                    HasSubstr("a group cannot lose a replica")));
  }
}

TEST(PlannedGroup, SharesStateOnlyWhereReplicasSumWithoutLinks) {
  const auto refusal = [](plan::Plan plan) {
    plan.recipe.sync.share_state = true;
    plan_groups(plan, nullptr);
    return refusal_of<base::UserError>([&] { check_shared_state(plan); });
  };
  const std::string kNothing = "nothing was refused";
  const auto always = recipe::GroupUse::always;
  EXPECT_EQ(refusal(with(plan_of("allreduce", 2, {0, 0, 0, 0}, kNoGpu), always)), kNothing);
  EXPECT_EQ(refusal(plan_of("diloco", 1, {0, 0, 1, 1}, kNoGpu)), kNothing);
  EXPECT_EQ(refusal(with(plan_of("allreduce", 1, {0, 0, 1}, kNoGpu), always)), kNothing);
  EXPECT_THAT(refusal(plan_of("allreduce", 1, {0, 0}, kNoGpu)),
              AllOf(HasSubstr("sync.share_state is true"), HasSubstr("sync.group to \"always\"")));
  EXPECT_THAT(refusal(plan_of("allreduce", 1, {0, 0})), HasSubstr("sync.group to \"always\""))
      << "not known yet";
  EXPECT_THAT(refusal(plan_of("diloco", 1, {0, 0}, kNoGpu)), HasSubstr("sync.group"));
  EXPECT_THAT(refusal(plan_of("diloco", 1, {0, 1}, kNoGpu)), HasSubstr("sync.group"));
  EXPECT_EQ(refusal(with(plan_of("allreduce", 1, {0, 0}, kOneGpu), always)), kNothing);
  EXPECT_EQ(refusal(plan_of("diloco", 1, {0, 0, 1, 1}, kOneGpu)), kNothing);
  plan::Plan offloaded = with(plan_of("allreduce", 1, {0, 0}, kOneGpu), always);
  offloaded.recipe.train.offload = recipe::Offload::optimizer;
  EXPECT_THAT(refusal(offloaded), AllOf(HasSubstr("stage 0.0 computes on a GPU (host a)"),
                                        HasSubstr("train.offload is \"optimizer\"")));
}

TEST(PlannedGroup, IsInThePlanAndItsText) {
  plan::Plan plan = plan_of("cocktail", 1, {0, 0, 1, 1});
  plan_groups(plan, nullptr);
  EXPECT_EQ(plan::groups_of(plan, 0), kPairs);
  EXPECT_TRUE(group_shares_host(plan, {0, 3}));
  EXPECT_FALSE(group_is_uncertain(plan, 0));
  EXPECT_EQ(group_text(plan),
            " between groups of replicas (0, 1 | 2, 3), which sum by NCCL, or in shared memory");
  plan = plan_of("allreduce", 1, {0, 0});
  plan_groups(plan, nullptr);
  EXPECT_TRUE(group_is_uncertain(plan, 0));
  EXPECT_EQ(group_text(plan), " by NCCL between GPUs of one host");
  plan = with(plan_of("allreduce", 1, {0, 0}, kNoGpu), recipe::GroupUse::always);
  plan_groups(plan, nullptr);
  EXPECT_EQ(group_text(plan), " in shared memory");
  plan = with(plan_of("cocktail", 1, {0, 0}, kNoGpu), recipe::GroupUse::always);
  plan_groups(plan, nullptr);
  EXPECT_EQ(group_text(plan), ", replaced by exact sums in shared memory");
  plan = plan_of("cocktail", 1, {0, 1});
  plan_groups(plan, nullptr);
  EXPECT_EQ(plan::groups_of(plan, 0), kTwo);
  EXPECT_EQ(group_text(plan), "");
}

// Their state is that of the groups that saved it.
TEST(PlannedGroup, OfRunThatResumesStaysWhereHostsAllowIt) {
  const plan::Plan flat = plan_of("cocktail", 1, {0, 0, 1, 1});
  plan::Plan resumed = plan_of("cocktail", 1, {0, 0, 1, 1});
  plan_groups(resumed, &flat);
  EXPECT_EQ(plan::groups_of(resumed, 0), kFour);
  plan::Plan grouped = plan_of("cocktail", 1, {0, 0, 1, 1});
  plan_groups(grouped, nullptr);
  plan_groups(resumed, &grouped);
  EXPECT_EQ(plan::groups_of(resumed, 0), kPairs);
  plan::Plan moved = plan_of("cocktail", 1, {0, 1, 0, 1});
  plan_groups(moved, &grouped);
  EXPECT_EQ(plan::groups_of(moved, 0), (ReplicaGroups{{0, 2}, {1, 3}}));
  plan::Plan other = plan_of("diloco", 1, {0, 0, 1, 1});
  plan_groups(other, &flat);
  EXPECT_EQ(plan::groups_of(other, 0), kPairs);
}

}  // namespace
}  // namespace strait::planner

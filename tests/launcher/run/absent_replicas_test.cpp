#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launcher/base/errors.h"
#include "launcher/run/restart_policy.h"

namespace strait::run {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// Three replicas of two stages: the first on hosts 0 and 1, the second on 1 and 2, the third on 3.
plan::Plan three_replicas() {
  plan::Plan plan;
  plan.recipe.pipeline.replicas = 3;
  plan.recipe.sync.on_loss = recipe::LossRule::continue_run;
  plan.recipe.hosts.backend = recipe::BackendKind::ssh;
  const std::size_t hosts[] = {0, 1, 1, 2, 3, 3};
  for (std::uint32_t i = 0; i < 6; ++i) {
    plan::Plan::Process& process = plan.processes.emplace_back();
    process.name = {i % 2, i / 2};
    process.host_index = hosts[i];
  }
  return plan;
}

TEST(AbsentReplicas, ExcludesHostsThatOtherReplicasUse) {
  EXPECT_THAT(hosts_only_of(three_replicas(), {}), IsEmpty());
  EXPECT_THAT(hosts_only_of(three_replicas(), {1}), ElementsAre(2));
  EXPECT_THAT(hosts_only_of(three_replicas(), {0, 1}), ElementsAre(0, 1, 2));
}

TEST(AbsentReplicas, AdvisesOptionsForAllAffectedReplicasIfPossible) {
  EXPECT_THAT(advice_to_start_without(three_replicas(), {}, {3}),
              HasSubstr("and add it later: --without 2"));
  EXPECT_THAT(advice_to_start_without(three_replicas(), {2}, {2}),
              HasSubstr("and add them later: --without 1 --without 2"));
  EXPECT_THAT(advice_to_start_without(three_replicas(), {}, {1, 3}), IsEmpty());
  plan::Plan stops = three_replicas();
  stops.recipe.sync.on_loss = recipe::LossRule::stop;
  EXPECT_THAT(advice_to_start_without(stops, {}, {3}), IsEmpty());
}

TEST(AbsentReplicas, LeavesOutReplicasOfLostHostsWhileAnotherRemains) {
  EXPECT_THAT(replicas_to_leave_out(three_replicas(), {}, {3}), ElementsAre(2));
  EXPECT_THAT(replicas_to_leave_out(three_replicas(), {}, {1}), ElementsAre(0, 1));
  EXPECT_THAT(replicas_to_leave_out(three_replicas(), {2}, {2}), ElementsAre(1));
  EXPECT_THAT(replicas_to_leave_out(three_replicas(), {2}, {1}), IsEmpty()) << "none remains";
  EXPECT_THAT(replicas_to_leave_out(three_replicas(), {}, {}), IsEmpty());
  plan::Plan stops = three_replicas();
  stops.recipe.sync.on_loss = recipe::LossRule::stop;
  EXPECT_THAT(replicas_to_leave_out(stops, {}, {3}), IsEmpty());
}

TEST(AbsentReplicas, RefusesWithReason) {
  check_can_start_without(three_replicas(), {});
  check_can_start_without(three_replicas(), {0, 2});
  const auto refusal = [](const plan::Plan& plan, const std::vector<std::uint32_t>& replicas) {
    try {
      check_can_start_without(plan, replicas);
    } catch (const base::UserError& error) {
      return std::string(error.what());
    }
    return std::string("nothing");
  };
  EXPECT_THAT(refusal(three_replicas(), {3}), HasSubstr("its replicas are 0 to 2"));
  EXPECT_THAT(refusal(three_replicas(), {0, 1, 2}), HasSubstr("at least one replica has to train"));
  plan::Plan job = three_replicas();
  job.recipe.sync.on_loss = recipe::LossRule::stop;
  EXPECT_THAT(refusal(job, {1}), HasSubstr("--set sync.on_loss=continue"));
}

}  // namespace
}  // namespace strait::run

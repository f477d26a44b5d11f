#include "launcher/app/emit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launcher/base/errors.h"

namespace strait::app {
namespace {

using testing::HasSubstr;
using testing::Not;

plan::Plan plan_for(recipe::BackendKind backend, std::size_t hosts) {
  plan::Plan plan;
  plan.recipe.name = "Dates_1";
  plan.recipe.hosts.backend = backend;
  plan.recipe.hosts.ports = {47000, 47099};
  for (std::size_t i = 0; i < hosts; ++i) {
    plan.hosts.push_back({"host " + std::to_string(i)});
    if (backend != recipe::BackendKind::slurm)
      plan.recipe.hosts.list.push_back({plan.hosts.back().name});
    for (int twice = 0; twice < 2; ++twice) {
      plan.processes.emplace_back();
      plan.processes.back().host_index = i;
      plan.processes.back().threads = 3;
      plan.processes.back().state_bytes = std::int64_t{1} << 30U;
    }
  }
  return plan;
}

const EmitSource kSource{"/opt/strait/bin/strait", "my recipe.toml", {"seed=3"}};

TEST(Emit, WritesSbatchScript) {
  const std::string text =
      emit_launch(plan_for(recipe::BackendKind::slurm, 2), EmitKind::sbatch, kSource);
  EXPECT_THAT(text,
              HasSubstr("#!/bin/sh\n#SBATCH \"--job-name=Dates_1\"\n#SBATCH \"--nodes=2\"\n"));
  EXPECT_THAT(text, HasSubstr("\nexec /opt/strait/bin/strait run 'my recipe.toml' --set seed=3\n"));
  EXPECT_THROW(emit_launch(plan_for(recipe::BackendKind::ssh, 2), EmitKind::sbatch, kSource),
               base::UserError);
}

TEST(Emit, WritesJoinCommandForEachHost) {
  const std::string text =
      emit_launch(plan_for(recipe::BackendKind::ssh, 2), EmitKind::commands, kSource);
  EXPECT_THAT(text, HasSubstr("\n/opt/strait/bin/strait run 'my recipe.toml' --set seed=3 --set "
                              "'hosts.backend=\"join\"'\n"));
  EXPECT_THAT(text, HasSubstr("# host 0:\n/opt/strait/bin/strait join "
                              "runs/Dates_1/join/0.token\n"));
  EXPECT_THAT(text, HasSubstr("# host 1:\n"));
  EXPECT_THAT(text, HasSubstr("ports 47000-47099"));
}

TEST(Emit, RefusesJoiningHostsWithoutNames) {
  plan::Plan plan = plan_for(recipe::BackendKind::local, 1);
  plan.recipe.hosts.list.clear();
  EXPECT_THROW(emit_launch(plan, EmitKind::commands, kSource), base::UserError);
  EXPECT_THROW(emit_launch(plan, EmitKind::kubernetes, kSource), base::UserError);
}

TEST(Emit, WritesKubernetesPodForEachHost) {
  plan::Plan plan = plan_for(recipe::BackendKind::join, 3);
  const std::string text = emit_launch(plan, EmitKind::kubernetes, kSource);
  EXPECT_THAT(text, HasSubstr("completions: 3\n  parallelism: 3\n"));
  EXPECT_THAT(text, HasSubstr("cpu: 6\n"));
  EXPECT_THAT(text, HasSubstr("memory: \"6144Mi\"\n"));
  EXPECT_THAT(text, Not(HasSubstr("nvidia")));
  EXPECT_THAT(text, HasSubstr("--from-file=runs/Dates_1/join"));
  plan.recipe.model.device = recipe::Device::cuda;
  EXPECT_THAT(emit_launch(plan, EmitKind::kubernetes, kSource),
              HasSubstr("            limits:\n              nvidia.com/gpu: 2\n"));
}

TEST(Emit, ConvertsNamesForKubernetes) {
  EXPECT_EQ(kubernetes_name("Dates_1"), "dates-1");
  EXPECT_EQ(kubernetes_name("7b"), "run-7b");
  EXPECT_EQ(kubernetes_name("a..."), "a");
  EXPECT_EQ(kubernetes_name(std::string(100, 'a')).size(), 40U);
}

}  // namespace
}  // namespace strait::app

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launcher/hosts/slurm_job.h"

namespace strait::hosts {
namespace {

using testing::HasSubstr;
using testing::Not;

plan::Plan plan_on(std::size_t nodes, std::size_t processes) {
  plan::Plan plan;
  plan.recipe.name = "dates";
  plan.recipe.hosts.backend = recipe::BackendKind::slurm;
  plan.hosts.resize(nodes);
  for (std::size_t i = 0; i < processes; ++i) {
    plan.processes.emplace_back();
    plan.processes.back().host_index = i * nodes / processes;
  }
  return plan;
}

TEST(BatchScript, WritesDefaults) {
  EXPECT_EQ(batch_script(plan_on(2, 2), "exec true\n"),
            "#!/bin/sh\n"
            "#SBATCH \"--job-name=dates\"\n"
            "#SBATCH \"--nodes=2\"\n"
            "#SBATCH \"--ntasks-per-node=1\"\n"
            "#SBATCH \"--signal=B:USR1@120\"\n"
            "#SBATCH \"--requeue\"\n"
            "#SBATCH \"--open-mode=append\"\n"
            "exec true\n");
}

TEST(BatchScript, WritesSettingsOfRecipe) {
  plan::Plan plan = plan_on(2, 3);
  plan.recipe.pipeline.threads = 4;
  recipe::SlurmSettings& slurm = plan.recipe.hosts.slurm;
  slurm.partition = "gpu";
  slurm.time = "2:00:00";
  slurm.account = "lab";
  slurm.gpus_per_node = 2;
  slurm.warning = 300;
  slurm.options = {"--qos=long", "--no-requeue"};
  const std::string script = batch_script(plan, "");
  EXPECT_THAT(script, HasSubstr("\"--cpus-per-task=8\"\n"));  // two stages on the first node
  EXPECT_THAT(script, HasSubstr("\"--partition=gpu\"\n"));
  EXPECT_THAT(script, HasSubstr("\"--time=2:00:00\"\n"));
  EXPECT_THAT(script, HasSubstr("\"--account=lab\"\n"));
  EXPECT_THAT(script, HasSubstr("\"--gpus-per-node=2\"\n"));
  EXPECT_THAT(script, HasSubstr("\"--signal=B:USR1@300\"\n"));
  // The user's own words come last, where they win.
  EXPECT_LT(script.find("--requeue"), script.find("--no-requeue"));
  EXPECT_TRUE(script.ends_with("#SBATCH \"--no-requeue\"\n"));
}

TEST(BatchScript, QuotesOptions) {
  plan::Plan plan = plan_on(1, 1);
  plan.recipe.hosts.slurm.options = {"--comment=it's \"x\" \\ #y $(id)"};
  EXPECT_THAT(batch_script(plan, ""),
              HasSubstr("#SBATCH \"--comment=it's \\\"x\\\" \\\\ #y $(id)\"\n"));
}

}  // namespace
}  // namespace strait::hosts

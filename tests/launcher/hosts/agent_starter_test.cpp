#include "launcher/hosts/agent_starter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launcher/base/errors.h"

namespace strait::hosts {
namespace {

using testing::HasSubstr;

std::string refusal(recipe::BackendKind backend) {
  plan::Plan plan;
  plan.hosts = {{"h0"}, {"h1"}};
  plan.recipe.hosts.backend = backend;
  try {
    agent_starter_in_run(plan, 1);
  } catch (const base::UserError& error) {
    EXPECT_EQ(error.code(), base::ExitCode::bad_input);
    return error.what();
  }
  return "nothing";
}

TEST(AgentStarters, RefusesStartInRunForSlurmAndJoin) {
  EXPECT_THAT(refusal(recipe::BackendKind::slurm),
              testing::AllOf(HasSubstr("host h1 is lost"), HasSubstr("the nodes of a Slurm job"),
                             HasSubstr("stop the run, and strait resume brings all back")));
  EXPECT_THAT(refusal(recipe::BackendKind::join),
              testing::AllOf(HasSubstr("host h1 is lost"),
                             HasSubstr("hosts join by a token only when a run starts"),
                             HasSubstr("stop the run, and strait resume brings all back")));
}

}  // namespace
}  // namespace strait::hosts

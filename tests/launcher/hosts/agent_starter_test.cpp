#include "launcher/hosts/agent_starter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

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

TEST(ForEachHost, ReturnsErrorsOfAnyKindByHost) {
  std::vector<int> done(4);
  const auto errors = for_each_host(done.size(), [&done](std::size_t host) {
    if (host == 1) throw base::UserError(base::ExitCode::peer_lost, "it is gone");
    if (host == 2) throw std::length_error("too long");
    ++done[host];
  });
  EXPECT_THAT(done, testing::ElementsAre(1, 0, 0, 1));
  ASSERT_EQ(errors.size(), 4U);
  EXPECT_EQ(errors[0], nullptr);
  EXPECT_THROW(std::rethrow_exception(errors[1]), base::UserError);
  EXPECT_THROW(std::rethrow_exception(errors[2]), std::length_error);
  EXPECT_EQ(errors[3], nullptr);
  EXPECT_TRUE(for_each_host(0, [](std::size_t) {}).empty());
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

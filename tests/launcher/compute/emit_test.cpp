#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launcher/compute/verbs.h"

namespace strait::compute {
namespace {

using testing::HasSubstr;

plan::Plan plan_for(recipe::BackendKind backend, std::size_t hosts) {
  plan::Plan plan;
  plan.recipe.name = "Dates_1";
  plan.recipe.hosts.backend = backend;
  plan.recipe.hosts.ports = {47000, 47099};
  for (std::size_t i = 0; i < hosts; ++i) {
    plan.hosts.push_back({"host " + std::to_string(i)});
    plan.recipe.hosts.list.push_back({plan.hosts.back().name});
    plan.processes.emplace_back();
    plan.processes.back().host_index = i;
    plan.processes.back().threads = 3;
  }
  return plan;
}

const EmitSource kSource{"/opt/strait/bin/strait", "my recipe.toml", {"seed=3"}};

TEST(Emit, WritesJoinCommandForEachHost) {
  const std::string text = emit_commands(plan_for(recipe::BackendKind::ssh, 2), kSource);
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
  EXPECT_THROW(emit_commands(plan, kSource), base::UserError);
}

}  // namespace
}  // namespace strait::compute

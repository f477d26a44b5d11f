#include "launcher/run/amended_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "launcher/base/errors.h"
#include "launcher/recipe/placement.h"
#include "launcher/recipe/plan.h"
#include "tests/launcher/user_error.h"

namespace strait::run {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

// Two replicas of one stage on a host each.
plan::Plan plan_of_two() {
  plan::Plan plan;
  plan.recipe.hosts.backend = recipe::BackendKind::ssh;
  for (std::uint32_t replica : {0U, 1U}) {
    plan.hosts.emplace_back().name = fmt::format("h{}", replica);
    plan.recipe.hosts.list.emplace_back().name = plan.hosts.back().name;
    plan::Plan::Process& process = plan.processes.emplace_back();
    process.name = {0, replica};
    process.host_index = replica;
    process.state_bytes = 1000;
  }
  return plan;
}

hosts::HostFacts facts_of(std::int64_t cores, std::int64_t memory) {
  hosts::HostFacts facts;
  facts.cores = cores;
  facts.processor = "x86-64";
  facts.memory = memory;
  facts.clock = std::chrono::duration_cast<std::chrono::seconds>(
                    std::chrono::system_clock::now().time_since_epoch())
                    .count();
  return facts;
}

TEST(AmendedPlan, TakesCoresAndMemoryFromFacts) {
  plan::Plan plan = plan_of_two();
  EXPECT_THAT(amend_by_facts(plan, {facts_of(6, 5000), {}}, {0}), IsEmpty());
  EXPECT_EQ(plan.hosts[0].cores, 6);
  EXPECT_EQ(plan.hosts[0].memory, 5000);
  EXPECT_EQ(plan.hosts[0].processor, "x86-64");
  EXPECT_EQ(plan.hosts[1].cores, 0);
  EXPECT_EQ(plan.processes[0].threads, 6);
  EXPECT_EQ(plan.processes[1].threads, 6);
  plan.recipe.pipeline.threads = 2;
  plan.processes[1].threads = 2;
  amend_by_facts(plan, {facts_of(6, 5000), facts_of(4, 5000)}, {0, 1});
  EXPECT_EQ(plan.processes[1].threads, 2);
}

TEST(AmendedPlan, ReportsLittleMemoryAndWrongClock) {
  plan::Plan plan = plan_of_two();
  hosts::HostFacts late = facts_of(1, 5000);
  late.clock -= 4000;
  const auto notes = amend_by_facts(plan, {facts_of(1, 5000), late}, {0, 1});
  ASSERT_EQ(notes.size(), 1U);
  EXPECT_THAT(notes[0].text, HasSubstr("the clock of h1 is 66 minutes behind"));
  EXPECT_THAT(
      base::user_error(base::ExitCode::out_of_memory,
                       [&] {
                         amend_by_facts(plan, {facts_of(1, 5000), facts_of(1, 999)}, {0, 1});
                       }),
      HasSubstr("host h1 may use"));
}

TEST(AmendedPlan, TakesUnknownMemoryForEnough) {
  plan::Plan plan = plan_of_two();
  EXPECT_NO_THROW(check_memory(plan, 0, facts_of(1, 0)));
  plan.recipe.hosts.list[0].memory = 999;
  EXPECT_THROW(check_memory(plan, 0, facts_of(1, 0)), base::UserError);
}

// A host may report any number as its clock.
TEST(AmendedPlan, ReportsClocksAtTheEndsOfTheirRange) {
  plan::Plan plan = plan_of_two();
  std::vector<hosts::HostFacts> facts = {facts_of(1, 5000), facts_of(1, 5000)};
  facts[0].clock = std::numeric_limits<std::int64_t>::min();
  facts[1].clock = std::numeric_limits<std::int64_t>::max();
  const auto notes = amend_by_facts(plan, facts, {0, 1});
  ASSERT_EQ(notes.size(), 2U);
  EXPECT_THAT(notes[0].text, HasSubstr("hours behind"));
  EXPECT_THAT(notes[1].text, HasSubstr("hours ahead of"));
}

TEST(AmendedPlan, TakesGpusFromFactsAndHoldsStagesAgainstThem) {
  plan::Plan plan = plan_of_two();
  plan.recipe.checkpoint.every = 0;           // no copies in the host's memory
  hosts::HostFacts facts = facts_of(1, 500);  // less than a stage needs, which is on the GPU
  const std::int64_t enough = 2000 + plan::kGpuContextBytes;
  facts.gpus = {enough};
  amend_by_facts(plan, {facts, facts_of(1, 5000)}, {0, 1});
  EXPECT_THAT(plan.hosts[0].gpus, testing::Optional(testing::ElementsAre(enough)));
  EXPECT_THAT(plan.hosts[1].gpus, testing::Optional(IsEmpty()));
  facts.gpus = {999 + plan::kGpuContextBytes};
  EXPECT_THAT(
      [&] {
        amend_by_facts(plan, {facts, facts_of(1, 5000)}, {0, 1});
      },
      testing::ThrowsMessage<base::UserError>(HasSubstr("GPU 0 of host h0 has")));
  plan.recipe.model.device = recipe::Device::cpu;
  EXPECT_THAT(
      [&] {
        amend_by_facts(plan, {facts, facts_of(1, 5000)}, {0, 1});
      },
      testing::ThrowsMessage<base::UserError>(HasSubstr("host h0 may use")));
}

}  // namespace
}  // namespace strait::run

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launcher/base/errors.h"
#include "launcher/recipe/placement.h"
#include "launcher/recipe/plan.h"

namespace strait::plan {
namespace {

using testing::HasSubstr;
using testing::Optional;
using testing::ThrowsMessage;

constexpr std::int64_t kGiB = std::int64_t{1} << 30;

// Five stages on two hosts: the first has four of them and two GPUs.
Plan five_stages() {
  Plan plan;
  plan.hosts = {{.name = "a"}, {.name = "b"}};
  plan.hosts[0].gpus = {8 * kGiB + 2 * kGpuContextBytes, 8 * kGiB + 2 * kGpuContextBytes};
  for (std::uint32_t i = 0; i < 5; ++i) {
    Plan::Process& process = plan.processes.emplace_back();
    process.name = {i, 0};
    process.host_index = i < 4 ? 0 : 1;
    process.host = plan.hosts[process.host_index].name;
    process.state_bytes = (i + 1) * kGiB;
    process.activation_bytes = kGiB;
    process.cache_bytes = 1000 * kGiB;  // of the host
  }
  return plan;
}

TEST(GpuMemory, StagesTakeTheGpusOfTheirHostInTurn) {
  Plan plan = five_stages();
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_THAT(plan.gpu_of(plan.processes[i]), Optional(i % 2));
  }
  EXPECT_EQ(plan.gpu_of(plan.processes[4]), std::nullopt) << "not known";
  plan.hosts[1].gpus.emplace();
  EXPECT_EQ(plan.gpu_of(plan.processes[4]), std::nullopt) << "it has none";
}

TEST(GpuMemory, StagesThatShareGpuFitTogether) {
  Plan plan = five_stages();
  check_gpu_memory(plan, 0);  // GPU 1 has stages 1 and 3: 3 and 5 GiB
  check_gpu_memory(plan, 1);
  (*plan.hosts[0].gpus)[1] -= 1;
  EXPECT_THAT([&] { check_gpu_memory(plan, 0); },
              ThrowsMessage<base::UserError>(HasSubstr(
                  "GPU 1 of host a has 9.2 GiB, but by the plan it has to hold 9.2 GiB (stage 1.0: "
                  "3.0 GiB, stage 3.0: 5.0 GiB, and 0.6 GiB of CUDA's own for each); give the host "
                  "fewer")));
  plan.hosts[0].gpus = {20 * kGiB, 0};
  check_gpu_memory(plan, 0);  // of a GPU of unknown size nothing is said
}

TEST(GpuMemory, HostKeepsWhatIsNotOnItsGpus) {
  Plan plan = five_stages();
  plan.recipe.checkpoint.every = 0;  // no copies for checkpoints
  EXPECT_EQ(host_memory_needed(plan, 0), 4 * 1000 * kGiB);
  EXPECT_EQ(host_memory_needed(plan, 1), 1006 * kGiB);
  // A checkpoint of what is on a GPU is a copy of all of it, and so is what replicas exchange.
  for (Plan::Process& process : plan.processes) process.saved_bytes = 12 * kGiB;
  EXPECT_EQ(host_memory_needed(plan, 0), 4 * 1012 * kGiB);
  EXPECT_EQ(host_memory_needed(plan, 1), 1006 * kGiB);
  plan.recipe.pipeline.replicas = 2;
  EXPECT_EQ(host_memory_needed(plan, 0), 4 * 1020 * kGiB);
  EXPECT_EQ(host_memory_needed(plan, 1), 1006 * kGiB);
}

// Its state is there already: nothing is copied for the last checkpoint, and replicas exchange it
// without a copy, but gradients.
TEST(GpuMemory, HostHoldsWhatIsOffloaded) {
  Plan plan = five_stages();
  plan.recipe.checkpoint.every = 0;
  for (Plan::Process& process : plan.processes) {
    process.offloaded_bytes = process.saved_bytes = 12 * kGiB;
  }
  EXPECT_EQ(host_memory_needed(plan, 0), 4 * 1012 * kGiB);
  plan.recipe.pipeline.replicas = 2;
  EXPECT_EQ(host_memory_needed(plan, 0), 4 * 1016 * kGiB);
  plan.recipe.pipeline.replicas = 1;
  plan.recipe.checkpoint.every = 10;
  plan.recipe.checkpoint.memory = kGiB;
  EXPECT_EQ(host_memory_needed(plan, 0), 4 * 1013 * kGiB);
}

}  // namespace
}  // namespace strait::plan

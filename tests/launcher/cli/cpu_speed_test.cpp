#include "launcher/cli/cpu_speed.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "launcher/plan/speeds.h"
#include "launcher/planner/plan_text.h"
#include "launcher/recipe/recipe_io.h"
#include "tests/scratch_directory.h"

namespace strait::cli {
namespace {

using testing::HasSubstr;

TEST(CpuSpeed, SizesAreCoarseSoThatFewMeasurementsServeAllRecipes) {
  EXPECT_EQ(block_size(16, 8, 1, 2), (BlockSize{64, 128, 1}));
  EXPECT_EQ(block_size(768, 300, 2, 2), (BlockSize{512, 256, 2}));
  EXPECT_EQ(block_size(900, 500, 2, 2), (BlockSize{1024, 512, 2}));
  EXPECT_EQ(block_size(8192, 8192, 1, 2), (BlockSize{1024, 512, 1}));
  // Threads above the cores compute no faster.
  EXPECT_EQ(block_size(64, 128, 64, 2).threads, 2);
}

TEST(CpuSpeed, IsMeasuredOnceAndAgainIfItsFileIsDamaged) {
  const ScratchDirectory scratch;
  const std::filesystem::path folder = scratch / "speeds";
  const BlockSize size{64, 128, 1};
  const recipe::MeasuredHost first = cpu_speed("localhost", size, folder);
  EXPECT_EQ(first.name, "localhost");
  EXPECT_GT(first.flops_per_second, 1e8);
  EXPECT_GT(first.memory_bytes_per_second, 1e8);
  EXPECT_GT(first.backward, 0.5);
  EXPECT_EQ(first.threads, 1);
  EXPECT_EQ(cpu_speed("localhost", size, folder), first);  // two measurements are never equal
  const auto file = std::filesystem::directory_iterator(folder)->path();
  ScratchDirectory::write(file, "no table");
  EXPECT_NE(cpu_speed("localhost", size, folder), first);
  EXPECT_NO_THROW(recipe::read_links(file));
}

class PlanFirst : public testing::Test {
 protected:
  PlanFirst() {
    ::setenv("STRAIT_CACHE", (folder_ / "cache").c_str(), 1);
    std::filesystem::create_directory(folder_ / "model");
    ScratchDirectory::write(folder_ / "model" / "config.json",
                            R"({"model_type": "gpt2", "vocab_size": 257, "n_positions": 64,
                                "n_embd": 64, "n_layer": 2, "n_head": 4})");
    std::string text;
    for (int line = 0; line < 200; ++line) text += "a line of sixty-four bytes or so\n";
    ScratchDirectory::write(folder_ / "text.txt", text);
  }
  ~PlanFirst() override { ::unsetenv("STRAIT_CACHE"); }

  plan::Plan planned(const std::string& hosts = "") const {
    return plan_first(
               recipe::parse_recipe(
                   fmt::format(
                       "model = {{path = \"{0}/model\", weights = \"random\", device = \"cpu\"}}\n"
                       "data = {{train = \"{0}/text.txt\", tokenizer = \"bytes\", row = 64}}\n"
                       "train = {{steps = 10, batch = 8, micro_batch = 2}}\n"
                       "pipeline = {{stages = 2}}\n{1}",
                       folder_.path().string(), hosts),
                   "recipe.toml", {}))
        .plan;
  }

  ScratchDirectory folder_;
};

TEST_F(PlanFirst, UsesTheMeasuredSpeedOfThisMachineAndSaysSo) {
  const plan::Plan plan = planned();
  EXPECT_TRUE(plan::compute_speed(plan, plan.processes[0]).measured);
  EXPECT_THAT(planner::plan_text(plan), HasSubstr("measured "));
  EXPECT_EQ(planned().step_seconds, plan.step_seconds);  // the speed is kept
}

TEST_F(PlanFirst, DoesNotMeasureForOtherHosts) {
  const plan::Plan plan = planned("hosts = {backend = \"ssh\", list = [\"a\", \"b\"]}\n");
  EXPECT_FALSE(plan::compute_speed(plan, plan.processes[0]).measured);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "cache" / "speeds"));
}

}  // namespace
}  // namespace strait::cli

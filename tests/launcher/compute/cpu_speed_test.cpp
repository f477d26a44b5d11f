#include "launcher/compute/cpu_speed.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "launcher/base/machine.h"
#include "launcher/planner/plan_text.h"
#include "launcher/recipe/recipe_io.h"
#include "launcher/recipe/speeds.h"
#include "tests/scratch_directory.h"

namespace strait::compute {
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

constexpr BlockSize kSmallest{64, 128, 1};

// Holds on a machine with and without other work: what is kept depends on it.
TEST(CpuSpeed, IsKeptUnlessOtherProgramsUsedTheCores) {
  const ScratchDirectory scratch;
  const std::filesystem::path folder = scratch / "speeds";
  const recipe::MeasuredHost first = cpu_speed("localhost", kSmallest, folder);
  EXPECT_EQ(first.name, "localhost");
  EXPECT_GT(first.flops_per_second, 1e8);
  EXPECT_GT(first.memory_bytes_per_second, 1e8);
  EXPECT_GT(first.backward, 0.5);
  EXPECT_EQ(first.threads, 1);
  EXPECT_EQ(std::filesystem::exists(file_of_speed(kSmallest, folder)),
            !plan::measured_under_load(first));
}

TEST(CpuSpeed, IsReadFromItsFileAndMeasuredAgainIfThatIsDamaged) {
  const ScratchDirectory folder;
  recipe::MeasuredHost kept;
  kept.name = "this machine";
  kept.flops_per_second = 1.25e9;
  kept.backward = 2.5;
  kept.threads = 1;
  recipe::LinkTable table;
  table.hosts.push_back(kept);
  const std::filesystem::path file = file_of_speed(kSmallest, folder.path());
  ScratchDirectory::write(file, recipe::write_links(table, "kept"));
  const recipe::MeasuredHost read = cpu_speed("localhost", kSmallest, folder.path());
  EXPECT_EQ(read.flops_per_second, 1.25e9);
  EXPECT_FALSE(plan::measured_under_load(read));
  ScratchDirectory::write(file, "no table");
  EXPECT_NE(cpu_speed("localhost", kSmallest, folder.path()).flops_per_second, 1.25e9);
}

// Twice as many processes as cores compute during the measurement.
class BusyCores {
 public:
  BusyCores() {
    for (std::int64_t i = 0; i < 2 * base::usable_cores(); ++i) {
      const pid_t child = ::fork();
      if (child == 0) {
        ::alarm(120);  // also where the test is killed
        for (volatile std::uint64_t count = 0;;) count = count + 1;
      }
      children_.push_back(child);
    }
  }
  BusyCores(const BusyCores&) = delete;
  BusyCores& operator=(const BusyCores&) = delete;
  ~BusyCores() {
    for (const pid_t child : children_) {
      ::kill(child, SIGKILL);
      ::waitpid(child, nullptr, 0);
    }
  }

 private:
  std::vector<pid_t> children_;
};

TEST(CpuSpeed, IsNotKeptWhenMeasuredUnderLoad) {
  if (!base::waited_for_cores()) GTEST_SKIP() << "the kernel does not count waits for cores";
  const ScratchDirectory folder;
  const BusyCores busy;
  const recipe::MeasuredHost speed = cpu_speed("localhost", kSmallest, folder.path());
  EXPECT_TRUE(plan::measured_under_load(speed)) << speed.waited;
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
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

  planner::PlannedRun planned(const std::string& hosts = "") const {
    return plan_first(recipe::parse_recipe(
        fmt::format("model = {{path = \"{0}/model\", weights = \"random\", device = \"cpu\"}}\n"
                    "data = {{train = \"{0}/text.txt\", tokenizer = \"bytes\", row = 64}}\n"
                    "train = {{steps = 10, batch = 8, micro_batch = 2}}\n"
                    "pipeline = {{stages = 2}}\n{1}",
                    folder_.path().string(), hosts),
        "recipe.toml", {}));
  }

  ScratchDirectory folder_;
};

TEST_F(PlanFirst, UsesTheMeasuredSpeedOfThisMachineAndSaysSo) {
  const planner::PlannedRun first = planned();
  EXPECT_TRUE(plan::compute_speed(first.plan, first.plan.processes[0]).measured);
  const std::string text = planner::plan_text(first.plan);
  EXPECT_THAT(text, HasSubstr("measured "));
  const bool under_load = !std::filesystem::exists(folder_ / "cache" / "speeds");
  const auto says_so = HasSubstr("measured while other programs used localhost");
  if (under_load) {
    EXPECT_THAT(text, says_so);
  } else {
    EXPECT_THAT(text, testing::Not(says_so));
    EXPECT_EQ(planned().plan.step_seconds, first.plan.step_seconds);
  }
}

TEST_F(PlanFirst, SaysThatTheSpeedWasMeasuredUnderLoad) {
  if (!base::waited_for_cores()) GTEST_SKIP() << "the kernel does not count waits for cores";
  const BusyCores busy;
  const planner::PlannedRun run = planned();
  EXPECT_THAT(planner::plan_text(run.plan),
              HasSubstr("measured while other programs used localhost"));
  EXPECT_GT(to_json(run.plan).at("measured_hosts").at(0).at("waited"), 0.05);
  EXPECT_THAT(run.train.notes, testing::Each(testing::Not(HasSubstr("other programs"))));
}

TEST_F(PlanFirst, DoesNotMeasureForOtherHosts) {
  const plan::Plan plan = planned("hosts = {backend = \"ssh\", list = [\"a\", \"b\"]}\n").plan;
  EXPECT_FALSE(plan::compute_speed(plan, plan.processes[0]).measured);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "cache" / "speeds"));
}

}  // namespace
}  // namespace strait::compute

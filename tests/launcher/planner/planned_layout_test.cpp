#include "launcher/planner/planned_layout.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "launcher/planner/plan_maker.h"
#include "launcher/planner/plan_text.h"
#include "launcher/recipe/recipe_io.h"
#include "tests/launcher/user_error.h"
#include "tests/scratch_directory.h"

namespace strait::planner {
namespace {

using testing::HasSubstr;
using testing::Not;

// A model of 12 blocks, text, and the speeds between three hosts.
class PlannedLayout : public testing::Test {
 protected:
  PlannedLayout() {
    std::filesystem::create_directory(folder_ / "model");
    ScratchDirectory::write(folder_ / "model" / "config.json",
                            R"({"model_type": "gpt2", "vocab_size": 257, "n_positions": 64,
                                "n_embd": 256, "n_layer": 12, "n_head": 4})");
    std::string text;
    for (int line = 0; line < 200; ++line) text += "a line of sixty-four bytes or so\n";
    ScratchDirectory::write(folder_ / "text.txt", text);
    ScratchDirectory::write(folder_ / "links.csv",
                            "from,to,mbit_per_s,ms\n"
                            "a,b,300,5\na,c,300,5\nb,c,75,5\n");
  }

  // `hosts`: the value of hosts.list.
  recipe::Recipe recipe(const std::string& hosts, const std::string& pipeline,
                        const std::string& more = "") const {
    return recipe::parse_recipe(
        fmt::format("model = {{path = \"{0}/model\", weights = \"random\", device = \"cpu\"}}\n"
                    "data = {{train = \"{0}/text.txt\", tokenizer = \"bytes\", row = 64}}\n"
                    "train = {{steps = 10, batch = 24, micro_batch = 1}}\n"
                    "pipeline = {{{1}}}\n"
                    "codec = {{forward = \"fixed\", backward = \"fixed\"}}\n"
                    "hosts = {{backend = \"ssh\", list = {2}, links = \"{0}/links.csv\"}}\n{3}",
                    folder_.path().string(), pipeline, hosts, more),
        "recipe.toml");
  }
  plan::Plan planned(const std::string& hosts, const std::string& pipeline,
                     const std::string& more = "") const {
    return make_plan(recipe(hosts, pipeline, more)).plan;
  }

  ScratchDirectory folder_;
};

constexpr const char* kAutomatic = R"(stages = "auto", replicas = "auto")";
constexpr const char* kPipelineOnly = R"(stages = "auto", replicas = 1)";

std::string hosts_with(double a, double b, double c) {
  return fmt::format(
      "[{{name = \"a\", tflops = {}}}, {{name = \"b\", tflops = {}}}, "
      "{{name = \"c\", tflops = {}}}]",
      a, b, c);
}

double seconds_of(const plan::Plan& plan) {
  return plan.layouts.empty() ? plan.step_seconds : plan.layouts.front().step_seconds;
}

TEST_F(PlannedLayout, GivesFastHostsMoreBlocksAndIsFasterThanTheListedOrder) {
  const std::string hosts = hosts_with(0.02, 0.005, 0.02);
  const plan::Plan chosen = planned(hosts, kPipelineOnly);
  EXPECT_LT(seconds_of(chosen), 0.7 * planned(hosts, "stages = 3").step_seconds);
  EXPECT_LT(seconds_of(chosen), planned(hosts, "stages = 1").step_seconds);
  ASSERT_FALSE(chosen.recipe.pipeline.choose_stages);
  // No stage of the slow host is as long as one of a fast host.
  std::size_t slow = 0;
  std::size_t fast = 100;
  for (const plan::Plan::Process& process : chosen.processes) {
    const auto blocks =
        static_cast<std::size_t>(process.chunks.front().last - process.chunks.front().first + 1);
    (process.host == "b" ? slow : fast) =
        process.host == "b" ? std::max(slow, blocks) : std::min(fast, blocks);
  }
  EXPECT_LT(slow, fast);
}

TEST_F(PlannedLayout, LeavesOutAHostThatWouldOnlyDelay) {
  const plan::Plan plan = planned(hosts_with(0.02, 0.02, 0.00001), kPipelineOnly);
  for (const plan::Plan::Process& process : plan.processes) EXPECT_NE(process.host, "c");
  EXPECT_THAT(plan_text(plan), HasSubstr("left out, because a step takes no longer without: c"));
}

TEST_F(PlannedLayout, TakesOneHostWhereLinksAreTooSlow) {
  ScratchDirectory::write(folder_ / "links.csv",
                          "from,to,mbit_per_s,ms\na,b,1,5\na,c,1,5\nb,c,1,5\n");
  const plan::Plan plan = planned(hosts_with(2, 2, 3), kAutomatic);
  ASSERT_EQ(plan.processes.size(), 1U);
  EXPECT_EQ(plan.processes.front().host, "c");
}

TEST_F(PlannedLayout, IsNoSlowerThanAnyStatedLayout) {
  const std::string hosts = hosts_with(0.02, 0.01, 0.03);
  const double chosen = seconds_of(planned(hosts, kAutomatic));
  for (const char* stated :
       {"stages = 1", "stages = 2", "stages = 3", "replicas = 2", "replicas = 3"}) {
    const plan::Plan plan = planned(hosts, stated);
    const double seconds = plan.sync_offers.empty() ? plan.step_seconds : [&] {
      return std::ranges::find(plan.sync_offers, plan.sync_method, &plan::Plan::SyncOffer::method)
          ->step_seconds;
    }();
    EXPECT_LE(chosen, 1.02 * seconds) << stated;
  }
}

TEST_F(PlannedLayout, StatedHostsAreTakenByReplicaThenStage) {
  const plan::Plan plan = planned(R"(["a", "b", "c"])", R"(stages = 2, hosts = ["c", "a"])");
  EXPECT_EQ(plan.processes[0].host, "c");
  EXPECT_EQ(plan.processes[1].host, "a");
}

// A run keeps the recipe of its plan, with the layout that was chosen.
TEST_F(PlannedLayout, ResumeKeepsTheLayoutUnlessOtherStagesAreAskedFor) {
  plan::Plan first = planned(hosts_with(0.02, 0.005, 0.02), kPipelineOnly);
  first.train.file = (folder_ / "text.txt").string();
  const auto resumed = [&](const std::vector<std::string>& overrides) {
    const std::string kept = recipe::recipe_to_toml(first.recipe);
    return make_plan(recipe::parse_recipe(kept, "recipe.toml", overrides), &first).plan;
  };
  EXPECT_EQ(resumed({"train.steps=12"}).recipe.pipeline, first.recipe.pipeline);
  EXPECT_EQ(resumed({"pipeline.stages=auto"}).recipe.pipeline, first.recipe.pipeline);
  EXPECT_TRUE(resumed({"pipeline.stages=1"}).recipe.pipeline.hosts.empty());
}

TEST_F(PlannedLayout, WrongHostsGetASentence) {
  const auto refusal = [&](const std::string& pipeline) {
    return base::user_error(base::ExitCode::bad_input, [&] { recipe(R"(["a", "b"])", pipeline); });
  };
  EXPECT_THAT(refusal(R"(stages = 2, hosts = ["a"])"),
              HasSubstr("pipeline.hosts has 1 names, but the run has 2 processes"));
  EXPECT_THAT(refusal(R"(stages = 2, hosts = ["a", "z"])"),
              HasSubstr("pipeline.hosts names z (recipe.toml:4:"));
  EXPECT_THAT(refusal(R"(stages = "auto", hosts = ["a"])"), HasSubstr("leave pipeline.hosts out"));
}

TEST_F(PlannedLayout, TextNamesTheChosenAndTheNextLayouts) {
  const std::string text = plan_text(planned(hosts_with(0.02, 0.005, 0.02), kPipelineOnly));
  EXPECT_THAT(text, HasSubstr("* "));
  EXPECT_THAT(text, HasSubstr("blocks of each stage"));
  EXPECT_THAT(text, HasSubstr("0.02 Tflop/s a process on a"));
  EXPECT_THAT(plan_text(planned(R"(["a", "b", "c"])", "stages = 2")),
              Not(HasSubstr("blocks of each stage")));
}

}  // namespace
}  // namespace strait::planner

#include "launcher/planner/planned_cut.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launcher/base/errors.h"
#include "launcher/base/machine.h"
#include "launcher/recipe/placement.h"
#include "launcher/recipe/speeds.h"
#include "models/model_config.h"
#include "stages/partition.h"
#include "tests/refusal_of.h"

namespace strait::planner {
namespace {

models::ModelDescription eight_blocks() {
  return models::describe(models::parse_config(
      R"({"model_type": "gpt2", "n_layer": 8, "n_embd": 16, "n_head": 2})", "config.json"));
}

recipe::Recipe recipe_of(std::int64_t stages, const std::string& schedule) {
  recipe::Recipe recipe;
  recipe.pipeline.stages = stages;
  recipe.pipeline.schedule = schedule;
  recipe.train.micro_batch = 2;
  recipe.data.row = 32;
  return recipe;
}

// What a partition of a user's own is asked in such a run.
partition::Question question_in(recipe::Recipe recipe, const recipe::LinkTable& speeds) {
  static partition::Question asked;
  if (stages::partitions().find("asks") == nullptr) {
    stages::partitions().add({"asks", "", [](const partition::Question& question) {
                                asked = question;
                                return stages::partitions().named("balanced").cut(question);
                              }});
  }
  recipe.pipeline.partition.kind = recipe::PartitionKind::plugin;
  recipe.pipeline.partition.plugin = "#asks";
  plan_cut(recipe, speeds, eight_blocks(), 8);
  return asked;
}

TEST(PlannedCut, TakesChunksFromRecipeElseFromSchedule) {
  EXPECT_EQ(chunks_of(recipe_of(2, "1f1b")), 1);
  EXPECT_EQ(chunks_of(recipe_of(2, "interleaved")), 2);
  EXPECT_EQ(chunks_of(recipe_of(1, "interleaved")), 1) << "a stage alone has nothing to wait for";
  recipe::Recipe recipe = recipe_of(2, "interleaved");
  recipe.pipeline.partition.kind = recipe::PartitionKind::ranges;
  recipe.pipeline.partition.ranges.resize(6);
  EXPECT_EQ(chunks_of(recipe), 3);
  recipe.pipeline.chunks = 4;
  EXPECT_EQ(chunks_of(recipe), 4);
}

TEST(PlannedCut, ListsLayersByPosition) {
  const PlannedCut cut = plan_cut(recipe_of(2, "interleaved"), {}, eight_blocks(), 8);
  ASSERT_EQ(cut.layers.size(), 4U);
  EXPECT_EQ(cut.hosts.size(), 2U);
  int next = 0;
  for (const models::LayerRange& layers : cut.layers) {
    EXPECT_EQ(layers.first, next);
    next = layers.last + 1;
  }
  EXPECT_EQ(next, 10);
}

TEST(PlannedCut, RefusesChunksForScheduleWithoutThem) {
  recipe::Recipe recipe = recipe_of(2, "gpipe");
  recipe.pipeline.chunks = 2;
  EXPECT_THAT([&] { plan_cut(recipe, {}, eight_blocks(), 8); },
              testing::ThrowsMessage<base::UserError>(
                  "pipeline.schedule: the schedule \"gpipe\" runs one chunk a stage, not 2; "
                  "\"interleaved\" runs several"));
}

TEST(PlannedCut, PassesChunksToPartition) {
  const partition::Question question = question_in(recipe_of(2, "interleaved"), {});
  EXPECT_EQ(question.chunks, 2);
  // Eight micro-batches in groups of two: a group in the second chunk, and three of the hop below.
  EXPECT_THAT(question.in_flight, testing::ElementsAre(5, 3));
}

TEST(PlannedCut, TakesNameOfPartitionFromBehindLastFolder) {
  recipe::Recipe recipe = recipe_of(2, "1f1b");
  recipe.pipeline.partition.kind = recipe::PartitionKind::plugin;
  for (const char* plugin : {"/no/exp#3/mine.so", "/no/exp#3/mine.so#even"}) {
    recipe.pipeline.partition.plugin = plugin;
    EXPECT_THAT(refusal_of<base::UserError>([&] { plan_cut(recipe, {}, eight_blocks(), 8); }),
                testing::HasSubstr("there is no plugin /no/exp#3/mine.so;"));
  }
}

TEST(PlannedCut, UsesMeasuredSpeedsElseAssumedOnes) {
  const double flops = eight_blocks().layers[1].forward_flops_per_token * 2 * 32;
  const auto cores = static_cast<double>(base::usable_cores());
  const auto layer = [](const partition::Question& question) { return question.model.layers[1]; };
  const auto assumed = question_in(recipe_of(2, "1f1b"), {});
  EXPECT_DOUBLE_EQ(*layer(assumed).forward_seconds, flops / (plan::kAssumedFlopsPerThread * cores));
  EXPECT_FALSE(assumed.cluster.hosts.front().seconds_per_flop);

  const std::string host = assumed.cluster.hosts.front().name;
  recipe::LinkTable speeds;
  speeds.hosts = {{host, 4e9, 2, 1, 0}};
  const auto measured = question_in(recipe_of(2, "1f1b"), speeds);
  EXPECT_DOUBLE_EQ(*layer(measured).forward_seconds, flops / 4e9);
  EXPECT_TRUE(measured.cluster.hosts.front().seconds_per_flop);
}

TEST(PlannedCut, AsksWithTheGpusThatHostsHaveReported) {
  recipe::LinkTable speeds;
  speeds.hosts.emplace_back().name = "localhost";
  EXPECT_THAT(gpus_of_hosts(recipe_of(2, "1f1b"), speeds),
              testing::ElementsAre(testing::Optional(testing::IsEmpty())))
      << "this machine is asked";
  speeds.hosts[0].gpu_memory = {5'000'000 + 2 * plan::kGpuContextBytes, 0};
  recipe::Recipe recipe = recipe_of(2, "1f1b");
  recipe.pipeline.replicas = 2;
  // Of the last replica: both GPUs have a stage of the first one.
  const partition::Host host = question_in(recipe, speeds).cluster.hosts.front();
  EXPECT_EQ(host.next_gpu, 2U);
  ASSERT_EQ(host.gpu_bytes.size(), 2U);
  EXPECT_LT(host.gpu_bytes[0], 5'000'000 + plan::kGpuContextBytes);
  EXPECT_GT(host.gpu_bytes[0], 1'000'000 + plan::kGpuContextBytes);
  EXPECT_EQ(host.gpu_bytes[1], 0);
  recipe.model.device = recipe::Device::cpu;
  EXPECT_TRUE(question_in(recipe, speeds).cluster.hosts.front().gpu_bytes.empty());
  recipe.model.device = recipe::Device::automatic;
  recipe.hosts.backend = recipe::BackendKind::ssh;
  recipe.hosts.list.emplace_back().name = "b";
  EXPECT_THAT(gpus_of_hosts(recipe, speeds), testing::ElementsAre(std::nullopt)) << "not known";
}

}  // namespace
}  // namespace strait::planner

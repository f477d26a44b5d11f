#include "launcher/worker/stage_settings.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace strait::worker {
namespace {

plan::StageJob middle_of_three() {
  plan::StageJob job;
  job.plan.recipe.pipeline.stages = 3;
  job.plan.model_config = R"({"model_type": "gpt2", "n_layer": 4, "n_embd": 8, "n_head": 2})";
  job.plan.micro_batches = 2;
  for (std::uint32_t stage = 0; stage < 3; ++stage) {
    plan::Plan::Process process;
    process.name = {stage, 0};
    process.chunks = {{static_cast<int>(2 * stage), static_cast<int>(2 * stage + 1)}};
    job.plan.processes.push_back(process);
    job.peer_keys[process.name.text()] = "key of " + process.name.text();
    if (stage == 2) break;
    plan::Plan::Link link;
    link.name = fmt::format("boundary {}.0>{}.0", stage, stage + 1);
    link.position = stage;
    link.connects = {stage, 0};
    link.listens = {stage + 1, 0};
    link.cache.memory_bytes = 1000 + stage;
    link.cache.disk_bytes = 2000 + stage;
    job.plan.links.push_back(link);
  }
  job.process = {1, 0};
  job.run_directory = "runs/x";
  return job;
}

TEST(StageSettings, BoundaryOptionsMatchEachEnd) {
  plan::StageJob job = middle_of_three();
  recipe::Recipe::Codec& codec = job.plan.recipe.codec;
  codec.forward = "delta";
  codec.forward_bits = 3;
  codec.first_bits = 16;
  codec.backward = "fixed";
  codec.backward_bits = 6;
  codec.group = 32;
  codec.cache_disk = 5;
  job.plan.train.rows = 77;
  const stages::StageOptions options = stage_options(job, store::Step{0});
  ASSERT_EQ(options.chunks.size(), 1U);
  const stages::ChunkPlan& chunk = options.chunks.front();
  for (const stages::BoundaryOptions& end : {chunk.upper, chunk.lower}) {
    EXPECT_EQ(end.codec, codec);
    EXPECT_EQ(end.cache_folder, "runs/x");
    EXPECT_EQ(end.boundaries, 2);
  }
  EXPECT_EQ(chunk.upper.name, "0.0>1.0");
  EXPECT_EQ(chunk.lower.name, "1.0>2.0");
  EXPECT_EQ(chunk.upper.position, 0);
  EXPECT_EQ(chunk.lower.position, 1);
  EXPECT_EQ(chunk.upper.cache.memory_bytes, 1000);
  EXPECT_EQ(chunk.lower.cache.disk_bytes, 2001);
  EXPECT_EQ(options.training_rows, 77);
  EXPECT_EQ(options.row_tokens, job.plan.recipe.data.row);
}

// Two stages of two chunks: stage 1 is an end of all three boundaries.
TEST(StageSettings, BoundaryOptionsMatchChunkPosition) {
  plan::StageJob job = middle_of_three();
  job.plan.recipe.pipeline.stages = 2;
  job.plan.recipe.pipeline.schedule = "interleaved";
  job.plan.processes.resize(2);
  job.plan.processes[0].chunks = {{0, 1}, {3, 3}};
  job.plan.processes[1].chunks = {{2, 2}, {4, 5}};
  job.plan.links.assign(3, job.plan.links.front());
  const std::vector<std::string> names = {"0.0/0>1.0/0", "1.0/0>0.0/1", "0.0/1>1.0/1"};
  for (std::uint32_t position = 0; position < 3; ++position) {
    plan::Plan::Link& link = job.plan.links[position];
    link.position = position;
    link.name = "boundary " + names[position];
    link.connects = {position % 2, 0};
    link.listens = {(position + 1) % 2, 0};
  }
  job.process = {1, 0};
  const stages::StageOptions options = stage_options(job, store::Step{0});
  ASSERT_EQ(options.chunks.size(), 2U);
  EXPECT_EQ(options.chunks[0].layers.first, 2);
  EXPECT_EQ(options.chunks[0].upper.name, names[0]);
  EXPECT_EQ(options.chunks[0].lower.name, names[1]);
  EXPECT_EQ(options.chunks[1].layers.last, 5);
  EXPECT_EQ(options.chunks[1].upper.name, names[2]);
  EXPECT_EQ(options.chunks[1].upper.position, 2);
  EXPECT_EQ(options.chunks[1].upper.boundaries, 3);
  EXPECT_EQ(options.chunks[1].lower.name, "") << "the pipeline ends here";
  EXPECT_EQ(options.training.back().chunk, ChunkIndex{0}) << "backwards end in the first chunk";
}

std::vector<std::string> differing_terms(const plan::StageJob& one, const plan::StageJob& other) {
  const net::Terms a = link_options(one, one.plan.links[0]).terms;
  const net::Terms b = link_options(other, other.plan.links[0]).terms;
  std::vector<std::string> keys;
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].first, b.at(i).first);
    if (a[i].second != b[i].second) keys.push_back(a[i].first);
  }
  return keys;
}

TEST(StageSettings, BoundaryTermsCoverCodecCacheAndGeneration) {
  const plan::StageJob job = middle_of_three();
  EXPECT_THAT(differing_terms(job, job), testing::IsEmpty());
  plan::StageJob other = job;
  other.codec_generation = 1;
  EXPECT_THAT(differing_terms(job, other), testing::ElementsAre("codec generation"));
  other = job;
  other.plan.recipe.codec.group = 128;
  EXPECT_THAT(differing_terms(job, other), testing::ElementsAre("codec", "plan"));
  other = job;
  other.plan.links[0].cache.memory_bytes = 5;
  EXPECT_THAT(differing_terms(job, other), testing::ElementsAre("cache", "plan"));
}

plan::StageJob first_of_two_replicas() {
  plan::StageJob job = middle_of_three();
  job.plan.recipe.pipeline.replicas = 2;
  job.plan.recipe.sync.method = "cocktail";
  job.plan.recipe.sync.top = 0.5;
  job.plan.sync_method = "cocktail";
  job.plan.steps = 40;
  job.plan.processes.push_back(job.plan.processes[1]);
  job.plan.processes.back().name = {1, 1};
  plan::Plan::Link link;
  link.name = "replica 1.0~1.1";
  link.use = plan::Plan::Use::replica;
  link.connects = {1, 0};
  link.listens = {1, 1};
  job.plan.links = {link};
  job.peer_keys["1.1"] = "key of 1.1";
  return job;
}

TEST(StageSettings, UnequalReplicasHaveTheirOwnMicroBatches) {
  plan::StageJob job = first_of_two_replicas();
  EXPECT_TRUE(stage_options(job, store::Step{0}).batch.micro_batches_by_replica.empty());
  job.plan.recipe.train.micro_batch = 4;
  job.plan.replica_rows = {24, 8};
  const stages::StageOptions options = stage_options(job, store::Step{0});
  EXPECT_THAT(options.batch.micro_batches_by_replica, testing::ElementsAre(6, 2));
  EXPECT_THAT(options.sync.rows, testing::ElementsAre(24, 8));
  EXPECT_EQ(options.training.size(), 2U * 6);
}

TEST(StageSettings, SyncOptionsComeFromPlanAndRecipe) {
  const plan::StageJob job = first_of_two_replicas();
  const stages::StageOptions options = stage_options(job, store::Step{0});
  EXPECT_EQ(options.sync.method, "cocktail");
  EXPECT_EQ(options.sync.top, 0.5);
  EXPECT_EQ(options.sync.steps, 40);
  EXPECT_EQ(options.batch.replicas, 2);
  plan::StageJob chosen = job;
  chosen.plan.recipe.sync = {};
  chosen.plan.recipe.sync.method = "auto";
  chosen.plan.sync_method = "powersgd";
  EXPECT_EQ(stage_options(chosen, store::Step{0}).sync.method, "powersgd");
  chosen.plan.sync_method = "cocktail";
  chosen.plan.sync_strength = sync::Strength{0.25, 1, 1};
  const stages::StageOptions strong = stage_options(chosen, store::Step{0});
  EXPECT_EQ(strong.sync.random, 0.25);
  EXPECT_EQ(strong.sync.top, 1);
  EXPECT_EQ(strong.sync.bits, 1);
}

TEST(StageSettings, LinkAsksForMemoryAsThePlanSays) {
  plan::StageJob job = middle_of_three();
  const plan::Plan::Link link = job.plan.links.front();
  EXPECT_TRUE(link_options(job, link).shared_memory);
  job.plan.recipe.hosts.shared_memory = false;
  EXPECT_FALSE(link_options(job, link).shared_memory);
}

// Neither end of a tied table may wait to send.
TEST(StageSettings, WindowOfTieHoldsTable) {
  plan::StageJob job = middle_of_three();
  plan::Plan::Link tie = job.plan.links.front();
  const std::uint64_t before = link_options(job, tie).window_bytes;
  tie.use = plan::Plan::Use::tie;
  EXPECT_GE(link_options(job, tie).window_bytes, before + 50257 * 8 * 4);
}

TEST(StageSettings, ReplicaLinkYieldsUnlessStepsWaitForRounds) {
  plan::StageJob job = first_of_two_replicas();
  for (const auto& [method, priority] : {std::pair("allreduce", net::Priority::foreground),
                                         {"bytegrad", net::Priority::foreground},
                                         {"powersgd", net::Priority::foreground},
                                         {"diloco", net::Priority::foreground},
                                         {"cocktail", net::Priority::background},
                                         {"streaming_diloco", net::Priority::background}}) {
    job.plan.recipe.sync.method = job.plan.sync_method = method;
    EXPECT_EQ(link_options(job, job.plan.links[0]).priority, priority) << method;
  }
}

TEST(StageSettings, ReplicaLinkIsBackgroundWithSyncTerms) {
  const plan::StageJob job = first_of_two_replicas();
  const net::LinkOptions options = link_options(job, job.plan.links[0]);
  EXPECT_EQ(options.peer, (net::ProcessName{1, 1}));
  EXPECT_EQ(options.priority, net::Priority::background);
  plan::StageJob other = job;
  other.plan.recipe.sync.top = 0.25;
  EXPECT_THAT(differing_terms(job, other), testing::ElementsAre("sync", "plan"));
  other = job;
  other.plan.sync_strength = sync::Strength{0.25, 1, 1};
  EXPECT_THAT(differing_terms(job, other), testing::ElementsAre("sync", "plan"));
  other = job;
  other.plan.recipe.codec.group = 128;
  EXPECT_THAT(differing_terms(job, other), testing::ElementsAre("plan"));
  other = job;
  other.plan.links[0].use = plan::Plan::Use::consensus;
  EXPECT_EQ(link_options(other, other.plan.links[0]).priority, net::Priority::foreground);
}

}  // namespace
}  // namespace strait::worker

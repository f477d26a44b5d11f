#include "launcher/planner/step_forecast.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "launcher/planner/plan_text.h"
#include "launcher/planner/planned_model.h"
#include "launcher/planner/run_forecast.h"
#include "launcher/recipe/speeds.h"

namespace strait::planner {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr const char* kTinyModel = R"({"model_type": "gpt2", "vocab_size": 257, "n_positions": 64,
                                       "n_embd": 64, "n_layer": 4, "n_head": 2})";

// Two stages on hosts a and b, with a boundary of 10 MB each way in a step of ten micro-batches.
plan::Plan plan_over_two_hosts() {
  plan::Plan plan;
  plan.model_config = kTinyModel;
  plan.hosts = {{"a"}, {"b"}};
  plan.micro_batches = 10;
  plan.recipe.name = "two";
  plan.recipe.model.path = "model";
  plan.recipe.data.train = {{"rows.jsonl"}};
  plan.recipe.train.steps = 1;
  plan.recipe.pipeline.stages = 2;
  for (std::uint32_t stage = 0; stage < 2; ++stage) {
    plan::Plan::Process process;
    process.name = {stage, 0};
    process.host = plan.hosts[stage].name;
    process.host_index = stage;
    process.chunks = {stage == 0 ? models::LayerRange{0, 2} : models::LayerRange{3, 5}};
    plan.processes.push_back(process);
  }
  plan::Plan::Link link;
  link.name = "boundary 0.0>1.0";
  link.connects = {0, 0};
  link.listens = {1, 0};
  link.forward_bytes = 10'000'000;
  link.backward_bytes = 10'000'000;
  plan.links.push_back(link);
  return plan;
}

plan::PathSpeed as_planned(const plan::Plan& plan, const plan::Plan::Link& /*link*/,
                           std::size_t from, std::size_t to) {
  return plan::path_speed(plan, from, to);
}

double forecast(const plan::Plan& plan) {
  return forecast_step(plan, [&](const plan::Plan::Link& link, std::size_t from, std::size_t to) {
    return as_planned(plan, link, from, to);
  });
}

TEST(StepForecast, CountsTheForwardsThatRecomputeRepeats) {
  plan::Plan plan = plan_over_two_hosts();
  const double kept = forecast(plan);
  plan.recipe.model.recompute = recipe::Recompute::layer;
  EXPECT_GT(forecast(plan), kept);
  models::ModelDescription model = models::describe(planned_model(plan), {64, 4});
  const std::int64_t whole = model.layers[1].saved_bytes_per_token;
  EXPECT_EQ(recompute_layers(plan.recipe.model, model), whole - 64 * 4) << "of a block";
  EXPECT_EQ(model.layers[1].saved_bytes_per_token, 64 * 4) << "its input";
  EXPECT_EQ(model.layers[1].backward_factor, 3);
}

TEST(StepWork, IsCountedByHand) {
  plan::Plan plan = plan_over_two_hosts();
  plan.recipe.data.row = 64;
  plan.recipe.train.batch = 20;  // two rows in each micro-batch
  plan.recipe.train.micro_batch = 2;
  // Of one token in a block: 4 matrices of 64 x 64, 2 of 64 x 256, scores and sums with 64 keys.
  constexpr double kBlock = 2.0 * (4 * 64 * 64 + 2 * 64 * 256 + 2 * 64 * 64);
  constexpr double kHead = 2.0 * 64 * 257;
  constexpr double kEmbedding = 2.0 * 64;  // two sums
  constexpr double kTokens = 10 * 2 * 64;
  constexpr double kWithBackward = 3;
  EXPECT_EQ(step_work(plan, {0, 0}).flops, kWithBackward * kTokens * (kEmbedding + 2 * kBlock));
  EXPECT_EQ(step_work(plan, {1, 0}).flops, kWithBackward * kTokens * (2 * kBlock + kHead));
  const double useful = step_work(plan, {1, 0}).flops;
  plan.recipe.model.recompute = recipe::Recompute::layer;
  EXPECT_EQ(step_work(plan, {1, 0}).flops, useful) << "what recompute repeats is no use";
  EXPECT_EQ(step_work(plan, {1, 0}).devices, 1);
  plan.processes[1].host_index = 0;
  EXPECT_EQ(step_work(plan, {1, 0}).devices, 0.5) << "both on one CPU";
  EXPECT_EQ(step_work(plan, {1, 0}, 2).devices, 1) << "a GPU each, which the plan does not know";
  plan.hosts[0].gpus = {80'000'000'000, 80'000'000'000};
  EXPECT_EQ(step_work(plan, {1, 0}).devices, 1) << "a GPU each";
}

TEST(StepWork, PeakIsThatOfAKnownGpuInTheTypeOfTheRun) {
  EXPECT_EQ(plan::published_flops("NVIDIA A100-SXM4-80GB", recipe::Dtype::bfloat16), 312e12);
  EXPECT_EQ(plan::published_flops("NVIDIA A100-SXM4-80GB", recipe::Dtype::float32), 19.5e12);
  EXPECT_EQ(plan::published_flops("Tesla T4", recipe::Dtype::bfloat16), 8.1e12);
  EXPECT_EQ(plan::published_flops("Voodoo 2", recipe::Dtype::float32), 0);
  EXPECT_EQ(plan::published_flops("", recipe::Dtype::float32), 0);
}

TEST(BestMicroBatch, IsSmallestOfThoseThatAreNearlyFastest) {
  using Seconds = std::map<std::int64_t, std::optional<double>>;
  const auto best = [](Seconds seconds) {
    return best_micro_batch(12, [&](std::int64_t rows) { return seconds.at(rows); });
  };
  EXPECT_EQ(best({{1, 2.0}, {2, 1.04}, {3, 1.0}, {4, 1.02}, {6, 1.5}, {12, 2.0}}), 2);
  EXPECT_EQ(best({{1, 1.0}, {2, 1.0}, {3, 1.0}, {4, 1.0}, {6, 1.0}, {12, 1.0}}), 1);
  EXPECT_EQ(best({{1, 5.0}, {2, 4.0}, {3, 3.0}, {4, {}}, {6, {}}, {12, {}}}), 3) << "fits";
  EXPECT_EQ(best({{1, {}}, {2, {}}, {3, {}}, {4, {}}, {6, {}}, {12, {}}}), 1);
}

TEST(Speeds, PrefersMeasuredToStatedToAssumed) {
  plan::Plan plan = plan_over_two_hosts();
  EXPECT_EQ(plan::path_speed(plan, 0, 1).bytes_per_second, plan::kAssumedLineBytesPerSecond);
  EXPECT_EQ(plan::path_speed(plan, 0, 1).seconds, plan::kAssumedLineSeconds);
  EXPECT_EQ(plan::path_speed(plan, 0, 0).bytes_per_second, plan::kMemoryLinkBytesPerSecond);
  EXPECT_FALSE(plan::path_speed(plan, 0, 1).measured);
  plan.recipe.hosts.link_megabits = 80;
  EXPECT_EQ(plan::path_speed(plan, 0, 1).bytes_per_second, 1e7);
  plan.speeds.links = {{"a", "b", 8e6, 0, 0.03}};
  EXPECT_EQ(plan::path_speed(plan, 0, 1).bytes_per_second, 1e6);
  EXPECT_EQ(plan::path_speed(plan, 1, 0).seconds, 0.03);
  EXPECT_TRUE(plan::path_speed(plan, 0, 1).measured);
  EXPECT_EQ(plan::path_speed(plan, 0, 0).bytes_per_second, plan::kMemoryLinkBytesPerSecond)
      << "what stays in a host is not on its line";
  plan.speeds.links = {{"a", "b", 8e8, 0, 0}};
  EXPECT_EQ(plan::path_speed(plan, 0, 1).bytes_per_second, 1e8) << "stated for other links";
  plan.recipe.hosts.link_megabits.reset();
  plan.speeds.links = {{"a", "b", 100e9, 0, 0}};
  EXPECT_EQ(plan::path_speed(plan, 0, 1).bytes_per_second, plan::kLoopbackBytesPerSecond)
      << "sealing";
}

TEST(Speeds, LinksInsideAHostAreInMemoryUnlessTheRecipeSaysOtherwise) {
  plan::Plan plan = plan_over_two_hosts();
  plan::Plan::Link link;
  link.name = "boundary 0>1";
  link.connects = {0, 0};
  link.listens = {1, 0};
  EXPECT_FALSE(plan::shares_memory(plan, link)) << "between hosts";
  EXPECT_FALSE(plan::path_speed(plan, 0, 1).in_memory);
  plan.processes[1].host_index = 0;
  EXPECT_TRUE(plan::shares_memory(plan, link));
  EXPECT_TRUE(plan::path_speed(plan, 0, 0).in_memory);
  plan.recipe.hosts.simulate.delay = std::chrono::milliseconds(1);
  EXPECT_FALSE(plan::shares_memory(plan, link)) << "simulated";
  EXPECT_FALSE(plan::path_speed(plan, 0, 0).in_memory);
  plan.recipe.hosts.simulate_link = "boundary 1>2";
  EXPECT_TRUE(plan::shares_memory(plan, link)) << "another link is simulated";
  plan.recipe.hosts.simulate_link = link.name;
  EXPECT_FALSE(plan::shares_memory(plan, link));
  plan.recipe.hosts = {};
  plan.recipe.hosts.shared_memory = false;
  EXPECT_FALSE(plan::shares_memory(plan, link));
  EXPECT_EQ(plan::path_speed(plan, 0, 0).bytes_per_second, plan::kLoopbackBytesPerSecond);
}

TEST(Speeds, LinesAreThoseOfHosts) {
  plan::Plan plan = plan_over_two_hosts();
  plan.recipe.hosts.list = {{.name = "a", .uplink_megabits = 16, .downlink_megabits = 80},
                            {.name = "b", .uplink_megabits = 40}};
  EXPECT_EQ(plan::path_speed(plan, 0, 1).bytes_per_second, 2e6);
  EXPECT_EQ(plan::path_speed(plan, 1, 0).bytes_per_second, 5e6);
  EXPECT_EQ(plan::path_speed(plan, 1, 0).downlink, 1e7);
  EXPECT_TRUE(plan::path_speed(plan, 0, 1).stated);
  plan.speeds.links = {{"a", "b", 8e6, 24e6, 0}};
  EXPECT_EQ(plan::path_speed(plan, 0, 1).bytes_per_second, 2e6) << "several flows, as stated";
  EXPECT_EQ(plan::path_speed(plan, 0, 1).uplink, 2e6) << "as stated";
  plan.recipe.hosts.list.clear();
  EXPECT_EQ(plan::path_speed(plan, 0, 1).uplink, 3e6) << "what several connections reached";
  EXPECT_EQ(plan::path_speed(plan, 0, 1).bytes_per_second, 3e6) << "a link opens as many";
  plan.speeds.links = {{"a", "b", 8e6, 9e6, 0}};
  EXPECT_EQ(plan::path_speed(plan, 0, 1).bytes_per_second, 1e6) << "too little for a link to open";
  EXPECT_FALSE(plan::assumes_lines(plan));
  plan.speeds.links = {};
  EXPECT_TRUE(plan::assumes_lines(plan));
  EXPECT_THAT(plan_text(plan), HasSubstr("lines between hosts are assumed to carry 100 Mbit/s"));
}

// A tied table, of 40 MB a step, goes the same way as the activations.
TEST(Speeds, AStepTakesAtLeastTheTimeOfABusyLine) {
  plan::Plan plan = plan_over_two_hosts();
  plan.recipe.hosts.link_megabits = 80;
  EXPECT_LT(forecast(plan), 2);
  plan::Plan::Link tie = plan.links.front();
  tie.use = plan::Plan::Use::tie;
  tie.forward_bytes = 40'000'000;
  plan.links.push_back(tie);
  EXPECT_GE(forecast(plan), 5);
  EXPECT_LT(forecast(plan), 6);
}

TEST(Speeds, AGpuIsNeverAThread) {
  plan::Plan plan = plan_over_two_hosts();
  plan.recipe.model.dtype = recipe::Dtype::bfloat16;
  plan.recipe.hosts.list = {{.name = "a", .device = "RTX 4090"}, {.name = "b", .devices = {0}}};
  plan.hosts[0].device = "RTX 4090";
  EXPECT_NEAR(plan::compute_speed(plan, 0, 1).flops_per_second, 74e12, 1e12);
  EXPECT_EQ(plan::compute_speed(plan, 0, 64).flops_per_second,
            plan::compute_speed(plan, 0, 1).flops_per_second);
  EXPECT_EQ(plan::compute_speed(plan, 1, 1).flops_per_second, plan::kAssumedFlopsOfGpu);
  EXPECT_THAT(plan_text(plan), HasSubstr("60 Tflop/s a GPU and 70 Tflop/s a GPU"));
  plan.hosts[0].device = "Tesla T4";
  EXPECT_LT(plan::compute_speed(plan, 0, 1).flops_per_second, 4e12) << "it has no bfloat16";
  plan.recipe.model.device = recipe::Device::cpu;
  EXPECT_EQ(plan::compute_speed(plan, 0, 1).flops_per_second, plan::kAssumedFlopsPerThread);
}

// "tflops" alone says it, too.
TEST(Speeds, AGpuHasTheMemoryOfOne) {
  plan::Plan plan = plan_over_two_hosts();
  plan.recipe.hosts.list = {{.name = "a", .tflops = 30}, {.name = "b", .tflops = 2}};
  EXPECT_EQ(plan::copy_speed(plan, 0), plan::kAssumedMemoryOfGpu / 2);
  EXPECT_EQ(plan::copy_speed(plan, 1), plan::kAssumedMemoryBytesPerSecond / 2);
  plan.hosts[0].gpus.emplace();
  EXPECT_EQ(plan::copy_speed(plan, 0), plan::kAssumedMemoryBytesPerSecond / 2) << "it has none";
  plan.hosts[0].gpus.reset();
  plan.recipe.model.device = recipe::Device::cpu;
  EXPECT_EQ(plan::copy_speed(plan, 0), plan::kAssumedMemoryBytesPerSecond / 2);
}

TEST(StepForecast, CountsTheUpdateOfTheSlowestStage) {
  plan::Plan plan = plan_over_two_hosts();
  const models::ModelDescription model = models::describe(planned_model(plan), {64, 4});
  const double update = update_seconds(plan, 0, model, {1, 4});
  EXPECT_DOUBLE_EQ(update, 4 * 44.0 * static_cast<double>(model.layers[1].trained) /
                               plan::kAssumedMemoryBytesPerSecond);
  const double before = forecast(plan);
  plan.speeds.hosts = {{"b", 0, 0, 1, 1e6}};
  EXPECT_NEAR(forecast(plan) - before,
              update_seconds(plan, 1, model, {3, 5}) - update_seconds(plan, 0, model, {0, 2}),
              1e-9);
}

// Both stages of a replica on host a, whose cores two replicas share.
TEST(StepForecast, ProcessesOfAHostShareItsCores) {
  plan::Plan plan = plan_over_two_hosts();
  plan.hosts = {{"a", 4}, {"b"}};
  plan.recipe.pipeline.replicas = 2;
  const std::vector<std::size_t> hosts{0, 0, 0, 1};
  const std::vector<std::int64_t> threads{1, 8, 2, 2};
  const schedules::Machines first = machines_of(plan, hosts, threads, 0);
  ASSERT_EQ(first.cores.size(), 1U);
  EXPECT_DOUBLE_EQ(first.cores[0], 4.0 * 2 / 3) << "two of three processes";
  EXPECT_EQ(first.stages[0].threads, 1);
  EXPECT_EQ(first.stages[1].threads, 4) << "no more run than there are cores";
  const schedules::Machines second = machines_of(plan, hosts, threads, 1);
  ASSERT_EQ(second.cores.size(), 2U);
  EXPECT_DOUBLE_EQ(second.cores[second.stages[0].machine], 4.0 / 3);
  EXPECT_EQ(second.cores[second.stages[1].machine], std::numeric_limits<double>::infinity())
      << "its cores are not known";
  // One GPU for two stages of the first replica; their links have the cores.
  plan.hosts[0].gpus = {80'000'000'000};
  const schedules::Machines on_gpu = machines_of(plan, {{0, 0, 1, 1}}, threads, 0);
  ASSERT_EQ(on_gpu.cores.size(), 2U);
  EXPECT_EQ(on_gpu.stages[0].machine, on_gpu.stages[1].machine);
  EXPECT_EQ(on_gpu.cores[on_gpu.stages[0].machine], 1);
  EXPECT_EQ(on_gpu.stages[1].threads, 1);
  EXPECT_EQ(on_gpu.cores[on_gpu.stages[0].host], 4);
}

// A stage that waits leaves its core to the others: less than twice as long on half as many cores.
TEST(StepForecast, AStepOnSharedCoresTakesLessThanItsShareOfThem) {
  plan::Plan plan = plan_over_two_hosts();
  plan.speeds.hosts = {{"a", 1e8, 2, 1, 0}, {"b", 1e8, 2, 1, 0}};
  plan.recipe.hosts.link_megabits = 10'000;
  const double apart = forecast(plan);
  plan.hosts[0].cores = 1;
  plan.processes[1].host_index = 0;
  const double shared = forecast(plan);
  EXPECT_GT(shared, 1.5 * apart);
  EXPECT_LT(shared, 1.95 * apart);
  const std::map<net::ProcessName, double> computes = compute_seconds(plan);
  EXPECT_LT(std::max(computes.at({0, 0}), computes.at({1, 0})), shared);
}

// By brute force over all divisions between two replicas.
TEST(StepForecast, RowsOfReplicasAreThoseWithTheShortestStep) {
  for (const double slower : {1.0, 1.02, 1.5, 3.0, 10.0}) {
    SCOPED_TRACE(slower);
    StepCosts fast;
    fast.schedule = "1f1b";
    fast.stages = 2;
    fast.micro_batches = 8;
    fast.chunks = {{.forward_seconds = 0.1, .backward_seconds = 0.2},
                   {.forward_seconds = 0.1, .backward_seconds = 0.2, .update_seconds = 0.1}};
    fast.links.resize(1);
    StepCosts slow = fast;
    for (schedules::ChunkCost& cost : slow.chunks) {
      cost.forward_seconds *= slower;
      cost.backward_seconds *= slower;
    }
    const auto with = [&](std::int64_t count) {
      StepCosts one = fast;
      StepCosts other = slow;
      one.micro_batches = count;
      other.micro_batches = 16 - count;
      return std::max(step_seconds(one, 0), step_seconds(other, 0));
    };
    double shortest = with(8);
    for (std::int64_t count = 1; count < 16; ++count) shortest = std::min(shortest, with(count));
    const std::vector<std::int64_t> chosen = best_micro_batches({fast, slow}, 0);
    ASSERT_EQ(chosen.size(), 2U);
    EXPECT_EQ(chosen[0] + chosen[1], 16);
    EXPECT_LE(with(chosen[0]), 1.05 * shortest);
    EXPECT_EQ(chosen[0] == 8, slower < 1.05);
  }
}

// Forwards alone, once for each row: with adapters in the steps of the first epoch.
TEST(RunForecast, CountsTheForwardsOfAReferenceOnce) {
  plan::Plan plan = plan_over_two_hosts();
  plan.steps = 100;
  plan.epoch_steps = 10;
  plan.step_seconds = plan.first_epoch_step_seconds = 1;
  plan.reference_seconds = 0.25;
  EXPECT_DOUBLE_EQ(forecast_run(plan).steps_seconds, 100 + 10 * 0.25);
  plan.first_epoch_step_seconds = 1.25;
  plan.recipe.model.lora.emplace();
  EXPECT_DOUBLE_EQ(forecast_run(plan).steps_seconds, 90 + 10 * 1.25);
}

// By hand: 3 (M + (S - 1) / K) of four micro-batches on four stages.
TEST(StepForecast, SlicesShortenFillingAndDraining) {
  StepCosts costs;
  costs.micro_batches = costs.stages = 4;
  costs.chunks.assign(4, {.forward_seconds = 1, .backward_seconds = 2});
  costs.links.resize(3);
  for (const auto& [slices, seconds] : {std::pair(1, 21.0), {2, 16.5}, {4, 14.25}}) {
    costs.slices = slices;
    EXPECT_DOUBLE_EQ(step_seconds(costs, 0), seconds);
    EXPECT_DOUBLE_EQ(step_seconds(costs, best_depth(costs, 3)), seconds);
  }
}

TEST(StepForecast, ForwardsAloneHaveNoBackward) {
  StepCosts costs;
  costs.stages = 2;
  costs.micro_batches = 4;
  costs.chunks = {{.forward_seconds = 1, .backward_seconds = 2},
                  {.forward_seconds = 1, .backward_seconds = 2}};
  costs.links = {{.forward_bytes = 10,
                  .backward_bytes = 10,
                  .forward_bytes_per_second = 10,
                  .backward_bytes_per_second = 10}};
  EXPECT_DOUBLE_EQ(forward_seconds(costs, 1, 0), 4 + 1 + 0.1);
  EXPECT_GT(forward_seconds(costs, 100, 0), 40) << "the link is the slowest";
}

TEST(StepForecast, CountsTheLongerOfOffloadedUpdateAndTransfers) {
  plan::Plan plan = plan_over_two_hosts();
  plan.recipe.train.offload = recipe::Offload::optimizer;
  const models::ModelDescription model = models::describe(planned_model(plan), {64, 4});
  const auto trained = static_cast<double>(model.layers[1].trained);
  EXPECT_DOUBLE_EQ(update_seconds(plan, 0, model, {1, 1}),
                   44 * trained / plan::kAssumedMemoryBytesPerSecond)
      << "a CPU has nowhere to load off to";
  plan.recipe.model.device = recipe::Device::cuda;
  plan.recipe.model.dtype = recipe::Dtype::bfloat16;
  // Gradient, master and moments twice, value three times; gradient down, value up.
  const OffloadSeconds seconds = offload_seconds(plan.recipe, model.layers[1].trained);
  EXPECT_DOUBLE_EQ(seconds.update, (4 + 24 + 6) * trained / plan::kAssumedMemoryBytesPerSecond);
  EXPECT_DOUBLE_EQ(seconds.transfer, 6 * trained / plan::kAssumedPcieBytesPerSecond);
  EXPECT_DOUBLE_EQ(update_seconds(plan, 0, model, {1, 1}),
                   seconds.update + 16 * trained / plan::kAssumedMemoryOfGpu);
}

// Two stages on host 0, two replicas.
TEST(StepForecast, ProcessesOfAHostShareItsDiskAndReplicasOfAStageTheirState) {
  const std::vector<std::size_t> hosts = {0, 1, 0, 0};
  const UpdatePeers peers = update_peers(hosts, 2, 0);
  EXPECT_EQ(peers.all, 3);
  EXPECT_EQ(peers.of_stage, 2);
  EXPECT_EQ(update_peers(hosts, 2, 3).of_stage, 1);
  plan::Plan plan = plan_over_two_hosts();
  const models::ModelDescription model = models::describe(planned_model(plan), {64, 4});
  const auto trained = static_cast<double>(model.layers[1].trained);
  const double gradient = 16 * trained / plan::kAssumedMemoryBytesPerSecond;
  const double update = 28 * trained / plan::kAssumedMemoryBytesPerSecond;
  const double disk = 16 * trained / plan::kAssumedDiskBytesPerSecond;
  plan.recipe.train.offload = recipe::Offload::disk;
  EXPECT_DOUBLE_EQ(update_seconds(plan, 0, model, {1, 1}, peers), gradient + update + 3 * disk);
  plan.recipe.sync.share_state = true;
  EXPECT_DOUBLE_EQ(update_seconds(plan, 0, model, {1, 1}, peers),
                   gradient + update / 2 + 1.5 * disk);
}

TEST(StepForecast, CountsWhatAnUpdateReadsFromDiskAndWritesThere) {
  plan::Plan plan = plan_over_two_hosts();
  plan.recipe.train.offload = recipe::Offload::disk;
  const models::ModelDescription model = models::describe(planned_model(plan), {64, 4});
  const auto trained = static_cast<double>(model.layers[1].trained);
  // Of a stage on a CPU the moments.
  EXPECT_DOUBLE_EQ(update_seconds(plan, 0, model, {1, 1}),
                   44 * trained / plan::kAssumedMemoryBytesPerSecond +
                       16 * trained / plan::kAssumedDiskBytesPerSecond);
  plan.recipe.model.device = recipe::Device::cuda;
  plan.recipe.model.dtype = recipe::Dtype::bfloat16;
  const OffloadSeconds seconds = offload_seconds(plan.recipe, model.layers[1].trained);
  EXPECT_DOUBLE_EQ(update_seconds(plan, 0, model, {1, 1}),
                   seconds.update + 24 * trained / plan::kAssumedDiskBytesPerSecond +
                       16 * trained / plan::kAssumedMemoryOfGpu);
}

TEST(StepForecast, CountsTheProductsOfMuon) {
  plan::Plan plan = plan_over_two_hosts();
  const models::ModelDescription model = models::describe(planned_model(plan), {64, 4});
  const double adamw = update_seconds(plan, 0, model, {1, 1});
  plan.recipe.train.optimizer = recipe::OptimizerKind::muon;
  plan.recipe.pipeline.threads = 1;
  // Matrices of 64 x 192, 64 x 64 and twice 64 x 256; five steps of two products with the matrix
  // and one of a square.
  const double products = 5 * 2 * 64 * 64 * (2 * (192 + 64 + 2 * 256) + 4 * 64);
  EXPECT_NEAR(update_seconds(plan, 0, model, {1, 1}),
              adamw + products / plan::kAssumedFlopsPerThread, 1e-12);
  EXPECT_EQ(muon_parameters(plan, model, {{0, 1}}), 64 * (192 + 64 + 2 * 256));
}

TEST(RunForecast, CountsEvaluationsLinesWeightsAndMoney) {
  plan::Plan plan = plan_over_two_hosts();
  plan.steps = 100;
  plan.epoch_steps = 10;
  plan.step_seconds = 1;
  plan.first_epoch_step_seconds = 3;
  plan.links[0].first_forward_bytes = 20'000'000;
  RunForecast run = forecast_run(plan);
  EXPECT_EQ(run.steps_seconds, 10 * 3 + 90);
  EXPECT_EQ(run.evaluation_seconds, 0);
  EXPECT_EQ(run.sent_bytes[0], 10 * 20'000'000LL + 90 * 10'000'000LL);
  EXPECT_EQ(run.sent_bytes[1], 100 * 10'000'000LL);
  EXPECT_EQ(run.shipped_bytes, 0) << "of hosts on this machine";
  EXPECT_FALSE(run.cost);
  plan.links[0].cache.entry_bytes = 1;
  plan.eval = plan::Plan::Data{};
  plan.eval_micro_batches = 20;  // as many as two steps have
  plan.recipe.train.eval_every = 30;
  plan.recipe.checkpoint.every = 40;
  run = forecast_run(plan);
  EXPECT_EQ(run.evaluations, 4) << "after 30, 60, 90 and 100 steps";
  EXPECT_NEAR(run.evaluation_seconds, 4 * 2 * 3.0 / (1 + plan::kAssumedBackwardCost), 0.01);
  EXPECT_EQ(run.checkpoints, 3);
  plan.recipe.checkpoint.every = 0;
  EXPECT_EQ(forecast_run(plan).checkpoints, 1) << "at the end";
  plan.recipe.hosts.backend = recipe::BackendKind::ssh;
  plan.recipe.hosts.list = {
      {.name = "a", .price = 1.0}, {.name = "b", .price = 0.5}, {.name = "c"}};
  plan.recipe.hosts.ship_megabits = 100;
  plan.processes[0].parameters = 3'000'000'000;
  plan.processes[1].parameters = 1'000'000'000;
  plan.hosts[1].gpus = {1'000'000'000};
  run = forecast_run(plan);
  EXPECT_EQ(run.shipped_bytes, 16'000'000'000);
  EXPECT_DOUBLE_EQ(run.shipping_seconds, 1280);
  EXPECT_DOUBLE_EQ(run.gpu_seconds, run.steps_seconds + run.evaluation_seconds);
  EXPECT_DOUBLE_EQ(*run.cost, 1.5 * (run.gpu_seconds + 1280) / 3600);
  EXPECT_THAT(forecast_text(plan), Not(HasSubstr(" without ")));
  plan.recipe.hosts.list[0].price.reset();
  EXPECT_EQ(forecast_run(plan).without_price, std::vector<std::string>{"a"});
  const std::string text = forecast_text(plan);
  EXPECT_THAT(text, HasSubstr(" without a"));
  EXPECT_THAT(text, HasSubstr("get them within 21 min (hosts.ship_megabits)"));
  EXPECT_THAT(text, HasSubstr("a sends most"));
  EXPECT_THAT(text, HasSubstr("of it for 4 evaluations"));
  EXPECT_THAT(text, HasSubstr("in the first epoch (10 steps)"));
  plan.steps = 10;
  EXPECT_THAT(forecast_text(plan), Not(HasSubstr("first epoch"))) << "it has no other";
}

// As rows below the lowest adapter have it, or a reference.
TEST(RunForecast, SaysAFirstEpochThatTakesLongerWithoutACache) {
  plan::Plan plan = plan_over_two_hosts();
  plan.steps = 100;
  plan.epoch_steps = 10;
  plan.step_seconds = plan.first_epoch_step_seconds = 1;
  EXPECT_THAT(forecast_text(plan), Not(HasSubstr("first epoch")));
  plan.first_epoch_step_seconds = 3;
  EXPECT_THAT(forecast_text(plan), HasSubstr("1 s a step, 3 s in the first epoch (10 steps)"));
}

TEST(RunForecast, EvaluationsMakeNoUpdate) {
  plan::Plan plan = plan_over_two_hosts();
  plan.steps = 1;
  plan.eval = plan::Plan::Data{};
  plan.eval_micro_batches = 10;  // as many as a step has
  const models::ModelDescription model = models::describe(planned_model(plan), {64, 4});
  const double update =
      std::max(update_seconds(plan, 0, model, {0, 2}), update_seconds(plan, 1, model, {3, 5}));
  plan.step_seconds = plan.first_epoch_step_seconds = update + 0.003;
  EXPECT_NEAR(forecast_run(plan).evaluation_seconds, 0.003 / (1 + plan::kAssumedBackwardCost),
              1e-9);
}

TEST(RunForecast, CountsEachGpuOnce) {
  plan::Plan plan = plan_over_two_hosts();
  plan.steps = 100;
  plan.step_seconds = 1;
  plan.processes[1].host_index = 0;
  plan.hosts[0].gpus = {80'000'000'000};
  EXPECT_DOUBLE_EQ(forecast_run(plan).gpu_seconds, 100) << "which both stages share";
  plan.hosts[0].gpus = {80'000'000'000, 80'000'000'000, 80'000'000'000};
  EXPECT_DOUBLE_EQ(forecast_run(plan).gpu_seconds, 200);
  plan.hosts[0].gpus.reset();
  plan.recipe.model.device = recipe::Device::cuda;
  EXPECT_DOUBLE_EQ(forecast_run(plan).gpu_seconds, 200) << "one each, if they are not known";
}

TEST(Speeds, ScalesMeasuredSpeedByThreads) {
  plan::Plan plan = plan_over_two_hosts();
  EXPECT_EQ(plan::compute_speed(plan, 0, 4).flops_per_second, 4 * plan::kAssumedFlopsPerThread);
  plan.speeds.hosts = {{"a", 3e10, 2.5, 2, 0}, {"b", 0, 0, 1, 1e10}};
  EXPECT_EQ(plan::compute_speed(plan, 0, 4).flops_per_second, 6e10);
  EXPECT_EQ(plan::compute_speed(plan, 0, 4).backward, 2.5);
  EXPECT_TRUE(plan::compute_speed(plan, 0, 4).measured);
  EXPECT_FALSE(plan::compute_speed(plan, 1, 4).measured) << "only its memory was measured";
}

TEST(Speeds, NoMoreThreadsRunThanTheHostHasCores) {
  plan::Plan plan = plan_over_two_hosts();
  plan.hosts[0].cores = 2;
  const auto speed = [&plan](std::int64_t threads, std::int64_t processes) {
    return plan::compute_speed(plan, 0, threads, processes).flops_per_second;
  };
  EXPECT_EQ(speed(64, 1), 2 * plan::kAssumedFlopsPerThread);
  EXPECT_EQ(speed(2, 2), plan::kAssumedFlopsPerThread) << "both want both cores";
  EXPECT_EQ(speed(1, 4), plan::kAssumedFlopsPerThread / 2);
  plan.speeds.hosts = {{"a", 3e10, 2, 1, 0}};
  EXPECT_EQ(speed(64, 1), 6e10);
  plan.speeds.hosts[0].threads = 64;
  EXPECT_EQ(speed(64, 1), 3e10) << "measured with the same cores";
  EXPECT_EQ(speed(1, 1), 1.5e10);
}

TEST(Speeds, StepTakesAtLeastTimeOfLink) {
  plan::Plan plan = plan_over_two_hosts();
  const double before = forecast(plan);
  plan.speeds.links = {{"a", "b", 8e6, 0, 0.03}};
  const double slow = forecast(plan);
  EXPECT_GT(slow, 10.0) << "10 MB at 1 MB/s";
  EXPECT_GT(slow, before);
  plan.speeds.hosts = {{"a", 1e7, 2, 1, 0}};
  EXPECT_GT(forecast(plan), slow);
}

// The two stages have two blocks each; the second also has the head.
TEST(Speeds, ForecastsZeroBubbleWithWeightGradientsOfTheirOwn) {
  plan::Plan plan = plan_over_two_hosts();
  const models::ModelDescription model =
      models::describe(models::parse_config(kTinyModel, "config.json"), {plan.recipe.data.row, 4});
  const schedules::ChunkCost cost =
      chunk_cost(model, {1, 2}, 100, {.flops_per_second = 1e9, .backward = 2});
  const models::LayerCost& block = model.layers[1];
  EXPECT_DOUBLE_EQ(cost.weight_gradient_seconds, 2 * 100 * 2.0 * 12 * 64 * 64 / 1e9);
  EXPECT_DOUBLE_EQ(cost.backward_seconds, 2 * 2 * 100 * block.forward_flops_per_token / 1e9);
  EXPECT_EQ(chunk_cost(model, {5, 5}, 100, {}).weight_gradient_seconds, 0);
  for (plan::Plan::Link& link : plan.links) link.forward_bytes = link.backward_bytes = 1'000'000;
  const double whole = forecast(plan);
  plan.recipe.pipeline.schedule = "zero_bubble";
  EXPECT_LT(forecast(plan), whole);
  EXPECT_GT(forecast(plan), 0.7 * whole);
}

// Only the rows of one micro-batch are waited for, in each direction.
TEST(Speeds, StepIncludesTiedRows) {
  plan::Plan plan = plan_over_two_hosts();
  plan.speeds.links = {{"a", "b", 8e7, 0, 0.03}};
  const double before = forecast(plan);
  plan::Plan::Link tie = plan.links.front();
  tie.name = "tie 0.0>1.0";
  tie.use = plan::Plan::Use::tie;
  tie.forward_bytes = 2'000'000;
  tie.backward_bytes = 1'000'000;
  plan.links.push_back(tie);
  EXPECT_NEAR(forecast(plan) - before, (0.2 + 0.1) / 10 + 2 * 0.03, 1e-9);
}

TEST(Speeds, RelayAddsLatencyAndIsShared) {
  plan::Plan plan = plan_over_two_hosts();
  plan.speeds.links = {{"a", "b", 8e6, 0, 0.03}};
  const auto relayed = [&](std::size_t links) {
    return forecast_step(plan,
                         [&](const plan::Plan::Link& /*link*/, std::size_t from, std::size_t to) {
                           return plan::relayed_speed(plan::path_speed(plan, from, to), links);
                         });
  };
  EXPECT_GT(relayed(1), forecast(plan));
  EXPECT_GT(relayed(3), 2 * relayed(1));
}

TEST(Speeds, PlanContainsAndPrintsMeasuredSpeeds) {
  plan::Plan plan = plan_over_two_hosts();
  EXPECT_THAT(plan_text(plan),
              AllOf(HasSubstr("forecast at assumed 100 Mbit/s a link and 20 Gflop/s a thread"),
                    Not(HasSubstr("measured"))));
  plan.speeds.links = {{"a", "b", 96e6, 97e6, 0.03}};
  plan.speeds.hosts = {{"b", 3e10, 2.5, 1, 1e10}};
  EXPECT_EQ(plan::plan_from_json(to_json(plan)).speeds, plan.speeds);
  EXPECT_THAT(plan_text(plan), HasSubstr("measured 30 Gflop/s a thread on b, 96 Mbit/s and 30 ms "
                                         "from a to b; assumed 20 Gflop/s a thread:"));
}

}  // namespace
}  // namespace strait::planner

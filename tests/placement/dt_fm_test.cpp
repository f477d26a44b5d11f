// The cases of "Decentralized Training of Foundation Models in Heterogeneous Environments" (Yuan et
// al., 2022): its published delays and rates, its cost model, and what this search finds on them.
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "placement/search.h"

namespace strait::placement {
namespace {

struct Region {
  std::string name;
  int gpus;
};

using Pair = std::pair<std::string, std::string>;

// Milliseconds one way, and Gbit/s.
const std::map<Pair, Path> kWorld = {
    {{"oregon", "virginia"}, {.79, 67}},   {{"oregon", "ohio"}, {1.10, 49}},
    {{"oregon", "tokyo"}, {.523, 96}},     {{"oregon", "seoul"}, {.46, 124}},
    {{"oregon", "london"}, {.42, 136}},    {{"oregon", "frankfurt"}, {.404, 143}},
    {{"oregon", "ireland"}, {.482, 124}},  {{"virginia", "ohio"}, {1.12, 11}},
    {{"virginia", "tokyo"}, {.524, 143}},  {{"virginia", "seoul"}, {.50, 172}},
    {{"virginia", "london"}, {1.16, 76}},  {{"virginia", "frankfurt"}, {1.02, 90}},
    {{"virginia", "ireland"}, {1.05, 67}}, {{"ohio", "tokyo"}, {.694, 130}},
    {{"ohio", "seoul"}, {.529, 159}},      {{"ohio", "london"}, {1.05, 86}},
    {{"ohio", "frankfurt"}, {.799, 99}},   {{"ohio", "ireland"}, {1.14, 77}},
    {{"tokyo", "seoul"}, {1.10, 34}},      {{"tokyo", "london"}, {.366, 210}},
    {{"tokyo", "frankfurt"}, {.36, 223}},  {{"tokyo", "ireland"}, {.465, 199}},
    {{"seoul", "london"}, {.342, 238}},    {{"seoul", "frankfurt"}, {.358, 235}},
    {{"seoul", "ireland"}, {.335, 228}},   {{"london", "frankfurt"}, {1.14, 14}},
    {{"london", "ireland"}, {1.09, 12}},   {{"frankfurt", "ireland"}, {1.08, 24}},
};
const std::map<Pair, Path> kUnitedStates = {
    {{"virginia", "oregon"}, {1.15, 67}}, {{"virginia", "california"}, {1.05, 59}},
    {{"virginia", "ohio"}, {1.12, 11}},   {{"oregon", "california"}, {1.25, 12}},
    {{"oregon", "ohio"}, {1.10, 49}},     {{"california", "ohio"}, {1.02, 52}},
};
const std::map<Pair, Path> kTwoSites = {{{"ohio", "virginia"}, {1.12, 11}}};

constexpr int kStages = 8;
constexpr int kReplicas = 8;
constexpr int kMicroBatches = 61;           // of a replica
constexpr double kStageBytes = 0.65e9;      // of gradients
constexpr double kBatchBytes = 3.77e9 / 8;  // of activations over a boundary, as published
constexpr double kMicroBatchBytes = 8388608;

Problem problem_of(const std::vector<Region>& regions, const std::map<Pair, Path>& between,
                   Path inside) {
  std::vector<std::string> region_of;
  for (const Region& region : regions) {
    region_of.insert(region_of.end(), static_cast<std::size_t>(region.gpus), region.name);
  }
  const auto bytes_and_seconds = [](const Path& path) {
    return Path{path.bytes_per_second * 1e9 / 8, path.seconds / 1e3};
  };
  Problem problem;
  problem.hosts.resize(region_of.size());
  for (std::size_t one = 0; one < region_of.size(); ++one) {
    problem.devices.push_back({.host = one, .flops_per_second = 1e15});
    for (std::size_t other = 0; other < region_of.size(); ++other) {
      const auto found = between.find({region_of[one], region_of[other]});
      const auto turned = between.find({region_of[other], region_of[one]});
      const Path path = one == other              ? Path()
                        : found != between.end()  ? bytes_and_seconds(found->second)
                        : turned != between.end() ? bytes_and_seconds(turned->second)
                                                  : bytes_and_seconds(inside);
      problem.paths.push_back(path);
    }
  }
  problem.layers.assign(kStages, {.flops = 1, .sync_bytes = kStageBytes});
  problem.forward_bytes = kMicroBatchBytes;
  problem.backward_bytes = kMicroBatchBytes;
  problem.duplex = false;
  problem.micro_batches = kMicroBatches * kReplicas;
  problem.stages = kStages;
  problem.replicas = kReplicas;
  return problem;
}

Problem two_sites() { return problem_of({{"ohio", 32}, {"virginia", 32}}, kTwoSites, {5, 1}); }
Problem united_states() {
  return problem_of({{"california", 16}, {"ohio", 16}, {"oregon", 16}, {"virginia", 16}},
                    kUnitedStates, {2, 5});
}
Problem world() {
  return problem_of({{"oregon", 8},
                     {"virginia", 8},
                     {"ohio", 8},
                     {"tokyo", 8},
                     {"seoul", 8},
                     {"london", 8},
                     {"frankfurt", 8},
                     {"ireland", 8}},
                    kWorld, {2, 5});
}

const Path& path_of(const Problem& problem, std::size_t one, std::size_t other) {
  return problem.path(problem.devices[one].host, problem.devices[other].host);
}

// The paper's two terms. Its replicas exchange shards one after the other.
double replicas_seconds(const Problem& problem, const Layout& layout) {
  double most = 0;
  for (int stage = 0; stage < layout.stages; ++stage) {
    for (int replica = 0; replica < layout.replicas; ++replica) {
      double sum = 0;
      for (int other = 0; other < layout.replicas; ++other) {
        if (other == replica) continue;
        const Path& path =
            path_of(problem, layout.device(replica, stage), layout.device(other, stage));
        sum += 2 * (path.seconds + kStageBytes / layout.replicas / path.bytes_per_second);
      }
      most = std::max(most, sum);
    }
  }
  return most;
}

// Of the slowest replica: each hop with the whole batch, or with micro-batches that follow each
// other.
double pipeline_seconds(const Problem& problem, const Layout& layout, bool micro_batches) {
  double most = 0;
  for (int replica = 0; replica < layout.replicas; ++replica) {
    double sum = 0;
    double slowest = 0;
    for (int stage = 0; stage + 1 < layout.stages; ++stage) {
      const Path& path =
          path_of(problem, layout.device(replica, stage), layout.device(replica, stage + 1));
      const double bytes = micro_batches ? kMicroBatchBytes : kBatchBytes;
      sum += 2 * (path.seconds + bytes / path.bytes_per_second);
      slowest = std::max(slowest, 2 * bytes / path.bytes_per_second);
    }
    most = std::max(most, micro_batches ? sum + (kMicroBatches - 1) * slowest : sum);
  }
  return most;
}

double published_seconds(const Problem& problem, const Layout& layout) {
  return replicas_seconds(problem, layout) + pipeline_seconds(problem, layout, false);
}

double pipelined_seconds(const Problem& problem, const Layout& layout) {
  return replicas_seconds(problem, layout) + pipeline_seconds(problem, layout, true);
}

std::vector<LayerSpan> one_layer_each() {
  std::vector<LayerSpan> cut;
  for (int stage = 0; stage < kStages; ++stage) cut.emplace_back(stage, stage + 1);
  return cut;
}

// What the paper's search finds: each pipeline inside of one region.
Layout pipelines_in_regions(const Problem& problem) {
  Layout layout{kStages, kReplicas, {}, one_layer_each()};
  for (std::size_t i = 0; i < problem.devices.size(); ++i) layout.devices.push_back(i);
  return layout;
}

TEST(DtFm, PublishedCostsOfPublishedLayouts) {
  EXPECT_NEAR(published_seconds(two_sites(), pipelines_in_regions(two_sites())), 16.09, 0.005);
  EXPECT_NEAR(published_seconds(united_states(), pipelines_in_regions(united_states())), 34.80,
              0.005);
  EXPECT_NEAR(published_seconds(world(), pipelines_in_regions(world())), 49.22, 0.005);
}

TEST(DtFm, SearchIsNoWorseThanThePublishedLayoutsWhenMicroBatchesOverlap) {
  struct Case {
    Problem problem;
    double published;
    double at_most;
  };
  for (const Case& one : {Case{two_sites(), 7.33, 7.34}, Case{united_states(), 12.91, 12.92},
                          Case{world(), 27.32, 18.0}}) {
    const Layout published = pipelines_in_regions(one.problem);
    EXPECT_NEAR(pipelined_seconds(one.problem, published), one.published, 0.01);
    const std::vector<Choice> found = search(one.problem);
    ASSERT_FALSE(found.empty());
    EXPECT_LE(pipelined_seconds(one.problem, found.front().layout), one.at_most);
  }
}

}  // namespace
}  // namespace strait::placement

#include "placement/search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "placement/evaluation.h"
#include "tests/placement/networks.h"

namespace strait::placement {
namespace {

// Calls `visit` with every cut of the layers into stages.
template <typename Visit>
void every_cut(int layers, int stages, std::vector<LayerSpan>& cut, const Visit& visit) {
  const int first = cut.empty() ? 0 : cut.back().second;
  const int left = stages - static_cast<int>(cut.size());
  if (left == 0) {
    if (first == layers) visit(cut);
    return;
  }
  for (int end = first + 1; end <= layers - (left - 1); ++end) {
    cut.emplace_back(first, end);
    every_cut(layers, stages, cut, visit);
    cut.pop_back();
  }
}

double exhaustive_seconds(const Problem& problem) {
  double best = kUnlimited;
  const auto devices = static_cast<int>(problem.devices.size());
  const auto layers = static_cast<int>(problem.layers.size());
  for (int stages = 1; stages <= std::min(devices, layers); ++stages) {
    for (int replicas = 1; stages * replicas <= devices; ++replicas) {
      if (problem.micro_batches % replicas != 0) continue;
      std::vector<std::size_t> order(problem.devices.size());
      std::iota(order.begin(), order.end(), std::size_t{0});
      do {
        Layout layout{stages, replicas, {order.begin(), order.begin() + stages * replicas}, {}};
        every_cut(layers, stages, layout.cut, [&](const std::vector<LayerSpan>&) {
          best = std::min(best, cost_of(problem, layout).seconds);
        });
      } while (std::ranges::next_permutation(order).found);
    }
  }
  return best;
}

bool has_lines(const Problem& problem) {
  return problem.hosts.front().up_bytes_per_second != kUnlimited;
}

// The search cuts layers by compute and paths. Where lines set the pace, another cut can be better,
// and only single layers are moved then.
TEST(PlacementSearch, FindsWhatTryingAllLayoutsFinds) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    const Problem problem = random_problem(seed, 2 + seed % 4, 5, seed % 2 == 0 ? 4 : 12);
    const std::vector<Choice> found = search(problem, {.moves = 40'000});
    const double best = exhaustive_seconds(problem);
    if (best == kUnlimited) {
      EXPECT_TRUE(found.empty()) << "seed " << seed;
      continue;
    }
    ASSERT_FALSE(found.empty()) << "seed " << seed;
    EXPECT_LE(found.front().cost.seconds / best, has_lines(problem) ? 1.05 : 1 + 1e-9)
        << "seed " << seed;
  }
}

TEST(PlacementSearch, IsNeverWorseThanTrivialLayouts) {
  for (std::uint64_t seed = 0; seed < 1'000; ++seed) {
    const Problem problem = random_problem(seed, 2 + seed % 7, 8, 12);
    const std::vector<Choice> found = search(problem, {.moves = 100});
    const TrivialLayouts trivial(problem);
    const LayerSums sums(problem);
    for (int stages = 1; stages <= static_cast<int>(problem.devices.size()); ++stages) {
      for (int replicas = 1; stages * replicas <= static_cast<int>(problem.devices.size());
           ++replicas) {
        if (problem.micro_batches % replicas != 0) continue;
        Evaluation evaluation(problem, sums, stages, replicas);
        for (const std::vector<std::size_t>& order : trivial.of_shape(stages, replicas)) {
          evaluation.set_devices(order);
          const double seconds = evaluation.cost().seconds;
          ASSERT_TRUE(found.empty() ? seconds == kUnlimited : found.front().cost.seconds <= seconds)
              << "seed " << seed << ", " << stages << " stages, " << replicas << " replicas";
        }
      }
    }
  }
}

TEST(PlacementSearch, SaysTheCostsOfItsLayouts) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const Problem problem = random_problem(seed, 12, 16, 24);
    for (const Choice& choice : search(problem, {.moves = 2'000})) {
      EXPECT_EQ(cost_of(problem, choice.layout).seconds, choice.cost.seconds);
    }
  }
}

TEST(PlacementSearch, ChangesComputeNothingElseThanWholeEvaluation) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    const Problem problem = random_problem(seed, 13, 16, 24);
    const LayerSums sums(problem);
    Evaluation changed(problem, sums, 4, 3);
    changed.set_devices(TrivialLayouts(problem).of_shape(4, 3).front());
    std::mt19937_64 engine(seed);
    for (int change = 0; change < 30; ++change) {
      const Evaluation::State before = changed.state();
      const std::size_t one = engine() % 12;
      const std::size_t other = engine() % 13;
      changed.swap(one, other);
      changed.refresh();
      if (change % 3 == 0) {
        changed.swap(one, other);
        changed.restore(before);
      }
      Evaluation whole(problem, sums, 4, 3);
      whole.set_devices(changed.devices());
      ASSERT_EQ(changed.cost().seconds, whole.cost().seconds) << "seed " << seed;
    }
  }
}

TEST(PlacementSearch, DependsOnItsSeedAndNotOnThreads) {
  const Problem problem = random_problem(3, 20, 24, 32);
  const std::vector<Choice> once = search(problem, {.moves = 20'000});
  const std::vector<Choice> again = search(problem, {.moves = 20'000, .threads = 3});
  ASSERT_EQ(once.size(), again.size());
  for (std::size_t i = 0; i < once.size(); ++i) EXPECT_EQ(once[i].layout, again[i].layout);
}

// Stages hold what 1F1B holds.
TEST(PlacementSearch, FitsStagesIntoMemory) {
  Problem problem = uniform(3, 12, 6);
  for (Layer& layer : problem.layers) layer = {.flops = 1, .state_bytes = 2, .saved_bytes = 1};
  problem.devices[0].memory_bytes = 11;
  problem.devices[1].memory_bytes = 30;
  problem.devices[2].memory_bytes = 30;
  problem.replicas = 1;
  for (const Choice& choice : search(problem)) {
    for (int stage = 0; stage < choice.layout.stages; ++stage) {
      const LayerSpan& span = choice.layout.cut[static_cast<std::size_t>(stage)];
      const double layers = span.second - span.first;
      const double needed = layers * 2 + layers * (choice.layout.stages - stage);
      EXPECT_LE(needed, problem.devices[choice.layout.device(0, stage)].memory_bytes);
    }
  }
}

TEST(PlacementSearch, FindsNothingWhereNothingFits) {
  Problem problem = uniform(2, 4, 4);
  for (Layer& layer : problem.layers) layer.state_bytes = 10;
  for (Device& device : problem.devices) device.memory_bytes = 15;
  EXPECT_TRUE(search(problem).empty());
}

}  // namespace
}  // namespace strait::placement

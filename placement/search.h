#pragma once

#include "placement/problem.h"

namespace strait::placement {

struct SearchOptions {
  std::uint64_t seed = 1;
  std::int64_t moves = 400'000;  // of all shapes together; more find better layouts, in more time
  unsigned threads = 1;          // 0: all cores; the result does not depend on it
};

struct Choice {
  Layout layout;
  Cost cost;
};

// Layouts with their costs, the best of each shape (stages, replicas), shortest step first. Empty:
// none fits into memory. Never worse than a trivial layout: devices in their order, the fastest
// or largest ones, pipelines inside of regions of fast paths, or replicas inside of them.
// Deterministic by seed. Pure.
//
// The search is a simulated annealing over places. Its moves swap two devices, two stages of all
// replicas, the rest of two pipelines, or reverse some stages. Shapes compete in rounds: each round
// keeps the better half and gives it twice the moves.
std::vector<Choice> search(const Problem& problem, const SearchOptions& options = {});

// The trivial layouts of all shapes; see above.
class TrivialLayouts {
 public:
  explicit TrivialLayouts(const Problem& problem);
  // Orders of all devices: by replica, then by stage, then those that are left out.
  std::vector<std::vector<std::size_t>> of_shape(int stages, int replicas) const;

 private:
  std::vector<std::size_t> listed_;
  std::vector<std::size_t> fastest_;
  std::vector<std::size_t> roomiest_;  // with most memory first
  std::vector<std::size_t> chain_;     // regions of fast paths stay together
};

}  // namespace strait::placement

#include "schedules/evaluation_shard.h"

#include <algorithm>
#include <numeric>
#include <vector>

namespace strait::schedules {
namespace {

// The turns of a replica among those of all, until each has had its own: the next turn is that of
// the replica which would have had the least part of its own by then.
std::vector<std::int64_t> turns_of(std::span<const std::int64_t> weights, std::size_t index) {
  std::vector<std::int64_t> taken(weights.size());
  std::vector<std::int64_t> turns;
  const std::int64_t all = std::accumulate(weights.begin(), weights.end(), std::int64_t{0});
  for (std::int64_t turn = 0; turn < all; ++turn) {
    std::size_t next = 0;
    for (std::size_t i = 1; i < weights.size(); ++i) {
      if ((taken[i] + 1) * weights[next] < (taken[next] + 1) * weights[i]) next = i;
    }
    ++taken[next];
    if (next == index) turns.push_back(turn);
  }
  return turns;
}

}  // namespace

std::int64_t evaluation_micro_batches(std::int64_t all, std::span<const std::int64_t> weights,
                                      std::size_t index) {
  const std::vector<std::int64_t> turns = turns_of(weights, index);
  const std::int64_t period = std::accumulate(weights.begin(), weights.end(), std::int64_t{0});
  const auto rest = std::ranges::lower_bound(turns, all % period) - turns.begin();
  return all / period * std::ssize(turns) + rest;
}

std::int64_t evaluation_micro_batch(std::int64_t own, std::span<const std::int64_t> weights,
                                    std::size_t index) {
  const std::vector<std::int64_t> turns = turns_of(weights, index);
  const std::int64_t period = std::accumulate(weights.begin(), weights.end(), std::int64_t{0});
  const auto count = std::ssize(turns);
  return own / count * period + turns[static_cast<std::size_t>(own % count)];
}

}  // namespace strait::schedules

#include <algorithm>
#include <functional>
#include <numeric>

#include "placement/search.h"

namespace strait::placement {
namespace {

using Order = std::vector<std::size_t>;

// Seconds of what a pipeline sends between two hosts, there and back.
double distance(const Problem& problem, std::size_t one, std::size_t other) {
  if (one == other) return 0;
  const double bytes = problem.forward_bytes + problem.backward_bytes + 1;
  const Path& down = problem.path(one, other);
  const Path& up = problem.path(other, one);
  return bytes / down.bytes_per_second + bytes / up.bytes_per_second + down.seconds + up.seconds;
}

// Each device is followed by the nearest that is left.
Order chained(const Problem& problem, Order left) {
  Order chain;
  for (auto next = left.begin(); next != left.end();) {
    chain.push_back(*next);
    left.erase(next);
    const std::size_t last = problem.devices[chain.back()].host;
    next = std::ranges::min_element(left, {}, [&](std::size_t device) {
      return distance(problem, last, problem.devices[device].host);
    });
  }
  return chain;
}

// The first `used` devices of `order` in the order of `chain`, then the others.
Order chained_part(const Order& chain, const Order& order, std::size_t used) {
  std::vector<bool> taken(order.size());
  for (std::size_t i = 0; i < used; ++i) taken[order[i]] = true;
  Order part = chain;
  std::stable_partition(part.begin(), part.end(),
                        [&](std::size_t device) { return taken[device]; });
  return part;
}

// The same devices with those that are adjacent in `order` as replicas of a stage, not as stages of
// a replica.
Order by_stage(const Order& order, int stages, int replicas) {
  Order turned = order;
  std::size_t next = 0;
  for (int stage = 0; stage < stages; ++stage) {
    for (int replica = 0; replica < replicas; ++replica) {
      turned[static_cast<std::size_t>(replica) * static_cast<std::size_t>(stages) +
             static_cast<std::size_t>(stage)] = order[next++];
    }
  }
  return turned;
}

}  // namespace

TrivialLayouts::TrivialLayouts(const Problem& problem) : listed_(problem.devices.size()) {
  std::iota(listed_.begin(), listed_.end(), std::size_t{0});
  fastest_ = listed_;
  std::ranges::stable_sort(fastest_, std::greater<>(), [&](std::size_t device) {
    return problem.devices[device].flops_per_second;
  });
  roomiest_ = listed_;
  std::ranges::stable_sort(roomiest_, std::greater<>(), [&](std::size_t device) {
    return problem.devices[device].memory_bytes;
  });
  chain_ = chained(problem, listed_);
}

std::vector<Order> TrivialLayouts::of_shape(int stages, int replicas) const {
  const auto used = static_cast<std::size_t>(stages) * static_cast<std::size_t>(replicas);
  std::vector<Order> orders{listed_,
                            fastest_,
                            roomiest_,
                            chain_,
                            chained_part(chain_, listed_, used),
                            chained_part(chain_, fastest_, used)};
  for (std::size_t i = 0, end = orders.size(); i < end; ++i) {
    orders.push_back(by_stage(orders[i], stages, replicas));
  }
  return orders;
}

}  // namespace strait::placement

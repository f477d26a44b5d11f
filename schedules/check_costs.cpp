#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "schedules/simulate.h"

namespace strait::schedules {
namespace {

[[noreturn]] void refuse_cost(const std::string& fact) {
  throw std::invalid_argument("cannot simulate: " + fact);
}

void check_number(double value, const std::string& what) {
  if (std::isfinite(value) && value >= 0) return;
  refuse_cost(what + " is " + std::to_string(value) + ", expected a number of 0 or more");
}

void check_machines(std::size_t stages, const Machines& machines) {
  if (machines.stages.empty()) return;
  const std::size_t count = machines.cores.size();
  const bool right = machines.stages.size() == stages &&
                     std::ranges::all_of(machines.cores, [](double cores) { return cores > 0; }) &&
                     std::ranges::all_of(machines.stages, [count](const StagePlace& place) {
                       return place.machine < count && place.host < count && place.threads > 0;
                     });
  if (right) return;
  refuse_cost(std::to_string(machines.stages.size()) + " places of " + std::to_string(stages) +
              " stages on " + std::to_string(count) +
              " machines; expected one for each stage, with threads and cores above 0");
}

}  // namespace

void check_costs(std::size_t stages, std::span<const ChunkCost> costs,
                 std::span<const LinkCost> links, const Machines& machines) {
  if (stages == 0 || costs.empty() || costs.size() % stages != 0 ||
      links.size() != costs.size() - 1) {
    refuse_cost(std::to_string(stages) + " lists, " + std::to_string(costs.size()) +
                " stage costs and " + std::to_string(links.size()) +
                " links; expected one cost for every chunk of a list, as many in each, and "
                "one link fewer");
  }
  const auto at = [stages](std::size_t position) {
    const std::string stage = " stage " + std::to_string(position % stages);
    return position < stages ? stage : stage + " chunk " + std::to_string(position / stages);
  };
  for (std::size_t p = 0; p < costs.size(); ++p) {
    const std::string where = " of" + at(p);
    check_number(costs[p].forward_seconds, "forward time" + where);
    check_number(costs[p].backward_seconds, "backward time" + where);
    check_number(costs[p].weight_gradient_seconds, "weight gradient time" + where);
    check_number(costs[p].update_seconds, "update time" + where);
    check_number(costs[p].bytes_in_flight, "memory in flight" + where);
    check_number(costs[p].weight_gradient_bytes, "memory for weight gradients" + where);
    if (costs[p].weight_gradient_seconds > costs[p].backward_seconds) {
      refuse_cost("weight gradient time" + where + " is " +
                  std::to_string(costs[p].weight_gradient_seconds) +
                  ", more than that of the whole backward, " +
                  std::to_string(costs[p].backward_seconds));
    }
  }
  for (std::size_t p = 0; p < links.size(); ++p) {
    const std::string where = " of the link after" + at(p);
    check_number(links[p].forward_bytes, "forward bytes" + where);
    check_number(links[p].backward_bytes, "backward bytes" + where);
    check_number(links[p].latency_seconds, "latency" + where);
    check_number(links[p].forward_coding_seconds, "coding time" + where);
    check_number(links[p].backward_coding_seconds, "coding time" + where);
    check_number(links[p].transport_seconds_per_byte, "transport time" + where);
    for (const double rate :
         {links[p].forward_bytes_per_second, links[p].backward_bytes_per_second,
          links[p].forward_uplink_bytes_per_second, links[p].backward_uplink_bytes_per_second})
      if (!(rate > 0)) refuse_cost("bandwidth" + where + " is not above 0");
  }
  check_machines(stages, machines);
}

}  // namespace strait::schedules

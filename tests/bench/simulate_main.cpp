// What our simulator says of a step, for scripts: numbers in on stdin, numbers out as JSON.
//
//   SCHEDULE STAGES MICRO_BATCHES DEPTH
//   forward backward update [weight_gradient]   seconds, one line per stage
//   forward_bytes backward_bytes rate latency   one line per link; rate 0: infinitely fast

#include <exception>
#include <iostream>
#include <sstream>

#include "schedules/schedule.h"
#include "schedules/simulate.h"

namespace {

using namespace strait;
using namespace strait::schedules;

const Schedule* schedule_named(const std::string& name) {
  for (const Schedule& schedule : catalogue().all()) {
    if (schedule.name == name) return &schedule;
  }
  return nullptr;
}

int run() {
  std::string name;
  PipelineShape shape;
  std::cin >> name >> shape.stages >> shape.micro_batches >> shape.depth;
  const Schedule* schedule = schedule_named(name);
  if (schedule == nullptr || shape.stages < 1) {
    std::cerr << "expected: SCHEDULE STAGES MICRO_BATCHES DEPTH, got schedule \"" << name << "\"\n";
    return 2;
  }
  std::vector<ActionList> lists;
  std::vector<ChunkCost> costs(static_cast<std::size_t>(shape.stages));
  for (int stage = 0; stage < shape.stages; ++stage) {
    ChunkCost& cost = costs[static_cast<std::size_t>(stage)];
    std::string line;
    std::getline(std::cin >> std::ws, line);
    std::istringstream numbers(line);
    numbers >> cost.forward_seconds >> cost.backward_seconds >> cost.update_seconds;
    if (!numbers) std::cin.setstate(std::ios::failbit);
    if (!numbers.eof()) numbers >> cost.weight_gradient_seconds;
    lists.push_back(schedule->list(shape, static_cast<StageIndex>(stage)));
  }
  std::vector<LinkCost> links(costs.size() - 1);
  for (LinkCost& link : links) {
    double rate = 0;
    std::cin >> link.forward_bytes >> link.backward_bytes >> rate >> link.latency_seconds;
    if (rate > 0) link.forward_bytes_per_second = link.backward_bytes_per_second = rate;
  }
  if (!std::cin) {
    std::cerr << "fewer numbers than stages and links need\n";
    return 2;
  }
  const Forecast forecast = simulate(lists, costs, links);
  if (!forecast.completes()) {
    std::cerr << describe(forecast.blocked) << '\n';
    return 1;
  }
  std::cout.precision(17);
  std::cout << "{\"seconds\": " << forecast.seconds << ", \"idle\": [";
  for (std::size_t stage = 0; stage < forecast.stages.size(); ++stage) {
    std::cout << (stage == 0 ? "" : ", ") << forecast.stages[stage].idle_seconds;
  }
  std::cout << "]}\n";
  return 0;
}

}  // namespace

int main() {
  try {
    return run();
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 2;
  }
}

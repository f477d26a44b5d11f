#include "schedules/check_lists.h"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <vector>

#include "schedules/simulate.h"

namespace strait::schedules {
namespace {

// What is wrong with one stage's list; empty: nothing.
std::string fault_of(const ActionList& list, int micro_batches, int promised) {
  int forwards = 0;
  int backwards = 0;
  for (const Action& action : list) {
    const int m = number(action.micro_batch);
    if (number(action.chunk) != 0) return "asks for " + describe(action) + ", but has one chunk";
    if (action.work == Work::weight_gradient) {
      return "asks for " + describe(action) + ", but backwards are not split in this build";
    }
    int& done = action.work == Work::forward ? forwards : backwards;
    if (m != done || m >= micro_batches) {
      return "has " + describe(action) + " where " + std::to_string(done) + " is next of " +
             std::to_string(micro_batches);
    }
    ++done;
    if (backwards > forwards) return "has " + describe(action) + " before its forward";
    if (forwards - backwards > promised) {
      return "holds " + std::to_string(forwards - backwards) + " micro-batches and promises " +
             std::to_string(promised);
    }
  }
  if (forwards == micro_batches && backwards == micro_batches) return "";
  return "ends behind " + std::to_string(forwards) + " forwards and " + std::to_string(backwards) +
         " backwards of " + std::to_string(micro_batches);
}

}  // namespace

void check_lists(const Schedule& schedule, const PipelineShape& shape) {
  const std::string who = "the schedule \"" + std::string(schedule.name) + "\"";
  const std::vector<ActionList> lists = action_lists(schedule, shape);
  for (int s = 0; s < shape.stages; ++s) {
    const int promised = schedule.most_in_flight(shape, StageIndex{s});
    const std::string fault =
        fault_of(lists[static_cast<std::size_t>(s)], shape.micro_batches, promised);
    if (!fault.empty()) {
      std::string sentence = who;
      sentence.append(": stage ").append(std::to_string(s)).append(" ").append(fault);
      throw std::invalid_argument(sentence);
    }
  }
  const std::vector<StageCost> costs(lists.size());
  const Forecast played = simulate(lists, costs, std::vector<LinkCost>(lists.size() - 1));
  if (!played.completes()) {
    throw std::invalid_argument(who + " waits for ever: " + describe(played.blocked));
  }
}

}  // namespace strait::schedules

#include "schedules/schedule.h"

#include <array>
#include <stdexcept>
#include <string>

#include "schedules/gpipe.h"
#include "schedules/one_forward_one_backward.h"

namespace strait::schedules {

std::span<const Schedule> all_schedules() {
  static constexpr std::array kAll = {
      Schedule{"gpipe", "all forwards, then all backwards", &gpipe, &gpipe_in_flight},
      Schedule{"1f1b", "one forward and one backward in turn", &one_forward_one_backward,
               &one_forward_one_backward_in_flight},
  };
  return kAll;
}

const Schedule& schedule_named(std::string_view name) {
  std::string allowed;
  for (const Schedule& schedule : all_schedules()) {
    if (schedule.name == name) return schedule;
    if (!allowed.empty()) allowed += ", ";
    allowed += schedule.name;
  }
  throw std::invalid_argument("unknown schedule \"" + std::string(name) +
                              "\"; allowed are: " + allowed);
}

std::vector<ActionList> action_lists(const Schedule& schedule, const PipelineShape& shape) {
  std::vector<ActionList> lists;
  lists.reserve(static_cast<std::size_t>(shape.stages));
  for (int s = 0; s < shape.stages; ++s) lists.push_back(schedule.list(shape, StageIndex{s}));
  return lists;
}

}  // namespace strait::schedules

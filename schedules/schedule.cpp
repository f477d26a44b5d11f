#include "schedules/schedule.h"

#include "schedules/action_lists.h"

namespace strait::schedules {

Catalogue<Schedule>& catalogue() {
  static Catalogue<Schedule> all(
      "schedule", {{"gpipe", "all forwards, then all backwards", &gpipe, &gpipe_in_flight},
                   {"1f1b", "one forward and one backward in turn", &one_forward_one_backward,
                    &one_forward_one_backward_in_flight},
                   {"zero_bubble", "1f1b whose weight gradients wait until there is nothing else",
                    &zero_bubble, &zero_bubble_in_flight},
                   {"interleaved", "1f1b over several chunks a stage", &interleaved,
                    &interleaved_in_flight, 2}});
  return all;
}

const Schedule& schedule_named(std::string_view name) { return catalogue().named(name); }

ActionList action_list(const Schedule& schedule, const PipelineShape& shape, StageIndex stage) {
  return sliced(schedule.list(shape, stage), shape.slices);
}

std::vector<ActionList> action_lists(const Schedule& schedule, const PipelineShape& shape) {
  std::vector<ActionList> lists;
  lists.reserve(static_cast<std::size_t>(shape.stages));
  for (int s = 0; s < shape.stages; ++s)
    lists.push_back(action_list(schedule, shape, StageIndex{s}));
  return lists;
}

}  // namespace strait::schedules

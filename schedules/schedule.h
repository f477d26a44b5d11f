#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "framework/catalogue.h"
#include "schedules/action.h"
#include "schedules/pipeline_shape.h"

namespace strait::schedules {

// A training schedule under the name that recipes use: two pure functions.
struct Schedule {
  std::string name;
  std::string summary;                                   // half a sentence for `strait`'s output
  ActionList (*list)(const PipelineShape&, StageIndex);  // what the stage does
  // Micro-batches held at once, to their backwards, or to their weight gradients where backwards
  // are split; a micro-batch counts once for each chunk that holds it.
  int (*most_in_flight)(const PipelineShape&, StageIndex);
  int chunks = 1;  // default number of chunks a stage; 1: the schedule supports only one
};

// Every schedule: those of this build, each a line in schedule.cpp, and those of plugins.
Catalogue<Schedule>& catalogue();

// Throws std::invalid_argument that lists the allowed names.
const Schedule& schedule_named(std::string_view name);

// The lists of all stages, as `simulate` takes them.
std::vector<ActionList> action_lists(const Schedule& schedule, const PipelineShape& shape);

// Whether the lists of a schedule can be run in this shape: every stage does each micro-batch's
// forward and backward through each of its chunks once, both in index order, each backward behind
// its forward; of a chunk whose list has weight gradients, it has all of them likewise, each behind
// its backward. It never holds more than the schedule promises, and there is no deadlock. Throws
// std::invalid_argument that names the schedule, the stage and the action. Pure.
void check_lists(const Schedule& schedule, const PipelineShape& shape);

}  // namespace strait::schedules

#pragma once

#include "framework/catalogue.h"
#include "schedules/action.h"
#include "schedules/pipeline_shape.h"

namespace strait::schedules {

// A training schedule under the name that recipes use: two pure functions.
struct Schedule {
  std::string name;
  std::string summary;                                   // half a sentence, which `strait` prints
  ActionList (*list)(const PipelineShape&, StageIndex);  // what the stage does; ignores slices
  // Number of micro-batches held until their backwards, or until their weight gradients if
  // backwards are split. A micro-batch counts once per chunk that holds it.
  int (*most_in_flight)(const PipelineShape&, StageIndex);
  int chunks = 1;  // default number of chunks per stage; 1: the schedule supports only one
};

// All schedules: of this build, one line each in schedule.cpp, and of plugins.
Catalogue<Schedule>& catalogue();

// Throws std::invalid_argument that lists the allowed names.
const Schedule& schedule_named(std::string_view name);

// What a stage does in a step of this shape, slices included.
ActionList action_list(const Schedule& schedule, const PipelineShape& shape, StageIndex stage);

// The lists of all stages, as `simulate` takes them.
std::vector<ActionList> action_lists(const Schedule& schedule, const PipelineShape& shape);

// Checks that the lists of a schedule can run in this shape. Every stage does each micro-batch's
// forward and backward through each of its chunks once, in index order, and each backward after its
// forward. If the list of a chunk has weight gradients, it has all of them, in index order and each
// after its backward. A stage never holds more than the schedule promises, and there is no
// deadlock. Throws std::invalid_argument that names the schedule, the stage and the action. Pure.
void check_lists(const Schedule& schedule, const PipelineShape& shape);

}  // namespace strait::schedules

#include "launcher/planner/planned_schedule.h"

#include <fmt/format.h>

#include <iterator>
#include <stdexcept>

#include "launcher/base/errors.h"
#include "schedules/check_lists.h"

namespace strait::planner {
namespace {

constexpr std::int64_t kDeepestChosen = 3;  // by schedules::choose_depth

}  // namespace

std::int64_t chunks_of(const recipe::Recipe& recipe) {
  const recipe::Recipe::Pipeline& pipeline = recipe.pipeline;
  if (pipeline.chunks) return *pipeline.chunks;
  if (pipeline.partition.kind == recipe::PartitionKind::ranges) {
    return std::ssize(pipeline.partition.ranges) / pipeline.stages;
  }
  // A stage alone has nothing to wait for.
  return pipeline.stages == 1 ? 1 : schedules::schedule_named(pipeline.schedule).chunks;
}

schedules::PipelineShape shape_of(const recipe::Recipe& recipe, std::int64_t micro_batches,
                                  std::int64_t depth) {
  return {static_cast<int>(recipe.pipeline.stages), static_cast<int>(micro_batches),
          static_cast<int>(depth), static_cast<int>(chunks_of(recipe))};
}

const schedules::Schedule& plan_schedule(const recipe::Recipe& recipe, std::int64_t micro_batches) {
  try {
    const schedules::Schedule& schedule = schedules::schedule_named(recipe.pipeline.schedule);
    schedules::PipelineShape shape = shape_of(recipe, micro_batches, 0);
    const std::int64_t first = recipe.pipeline.depth.value_or(0);
    const std::int64_t last = recipe.pipeline.depth.value_or(kDeepestChosen);
    for (std::int64_t depth = first; depth <= last; ++depth) {
      shape.depth = static_cast<int>(depth);
      schedules::check_lists(schedule, shape);
    }
    return schedule;
  } catch (const std::invalid_argument& error) {
    throw base::UserError(base::ExitCode::bad_input, fmt::format("pipeline.schedule: {}", error.what()));
  }
}

}  // namespace strait::planner

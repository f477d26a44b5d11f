#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "launcher/recipe/links.h"
#include "launcher/recipe/recipe.h"
#include "models/model_description.h"

namespace strait::planner {

// How a model is cut, and where its stages run.
struct PlannedCut {
  std::vector<models::LayerRange> layers;  // of chunks, by place; see schedules/pipeline_shape.h
  std::vector<std::size_t> hosts;  // by replica, then by stage: which of hosts_of() (placement.h)
};

// Asks the recipe's partition, built in or of a plugin, once for every replica, and checks what it
// answers. stages::PartitionError, UserError: it has no answer, or a wrong one.
// `speeds`: what is measured of the hosts.
PlannedCut plan_cut(const recipe::Recipe& recipe, const recipe::LinkTable& speeds,
                    const models::ModelDescription& model, std::int64_t micro_batches);

}  // namespace strait::planner

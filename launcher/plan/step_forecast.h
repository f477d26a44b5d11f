#pragma once

#include <cstdint>
#include <vector>

#include "launcher/recipe/recipe.h"
#include "models/model_description.h"
#include "schedules/simulate.h"

namespace strait::launcher {

// What the simulator is told of a step until links and hosts are measured.
inline constexpr double kAssumedFlopsPerThread = 2e10;
inline constexpr double kAssumedLinkBytesPerSecond = 4e9 / 8;  // CURVE over loopback

// The cost of a micro-batch of so many tokens on a stage that has these layers.
schedules::StageCost stage_cost(const models::ModelDescription& model,
                                const models::LayerRange& layers, std::int64_t tokens,
                                std::int64_t threads);

// What the recipe says of its links, or what is assumed.
double link_bytes_per_second(const Recipe& recipe);

// A link of that speed that carries so much for every micro-batch.
schedules::LinkCost link_cost(double forward_bytes, double backward_bytes, double bytes_per_second);

// One replica's pipeline, for the simulator.
struct StepCosts {
  ScheduleKind schedule = ScheduleKind::one_forward_one_backward;
  std::int64_t micro_batches = 1;
  std::vector<schedules::StageCost> stages;
  std::vector<schedules::LinkCost> links;  // one less
};

// `depth = "auto"`.
std::int64_t best_depth(const StepCosts& costs);

double step_seconds(const StepCosts& costs, std::int64_t depth);

}  // namespace strait::launcher

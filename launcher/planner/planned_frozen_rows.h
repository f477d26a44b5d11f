#pragma once

#include "launcher/planner/planned_boundary.h"

namespace strait::planner {

// The rows that enter the first trained layer, which its stage keeps where no visit of a sample
// changes them (stages/frozen_rows.h): after the first epoch, nothing below is computed or sent.
// No entry_bytes: they are computed at each visit, because they change, there is one epoch only, or
// there is no room for all.
struct FrozenRowsQuestion {
  models::LayerRange first_chunk;
  std::vector<std::size_t> hosts;  // of all processes
  std::int64_t threads = 1;        // of a process, at most
};
codec::CacheLimits frozen_rows(const plan::Plan& plan, const models::ModelDescription& model,
                               const FrozenRowsQuestion& question);
// Of a complete plan.
codec::CacheLimits frozen_rows(const plan::Plan& plan, const models::ModelDescription& model);
// The layers of a chunk that are computed after the first epoch; may be empty.
models::LayerRange later_layers(const models::LayerRange& chunk,
                                const models::ModelDescription& model,
                                const codec::CacheLimits& frozen);
// Memory of these rows on a stage with these chunks.
std::int64_t frozen_row_bytes(const std::vector<models::LayerRange>& chunks,
                              const models::ModelDescription& model,
                              const codec::CacheLimits& frozen);

// Nothing crosses boundaries below the first trained layer after the first epoch.
void empty_frozen_boundaries(const std::vector<models::LayerRange>& ranges,
                             const models::ModelDescription& model,
                             std::vector<PlannedBoundary>& boundaries);

}  // namespace strait::planner

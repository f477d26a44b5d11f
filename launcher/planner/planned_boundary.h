#pragma once

#include <cstdint>
#include <vector>

#include "framework/tensors/token_file.h"
#include "launcher/planner/boundary_forecast.h"
#include "launcher/recipe/recipe.h"
#include "models/model_description.h"

namespace strait::planner {

// A boundary between two adjacent chunks, equal in every replica, with its activation cache.
struct PlannedBoundary {
  BoundaryLoad load;
  BoundaryBytes bytes;                // of a micro-batch
  double hits = 0;                    // cache hit rate after the first epoch
  std::int64_t entry_bytes = 0;       // of a cached sequence; 0: no cache
  std::int64_t cache_bytes = 0;       // limit in memory, at each end
  std::int64_t cache_disk_bytes = 0;  // limit on disk, in addition to memory
  std::int64_t cached_rows = 0;       // sequences that fit into both

  double forward_bytes() const {  // after the first epoch
    return hits * bytes.known_forward + (1 - hits) * bytes.first_forward;
  }
  std::int64_t bytes_in_memory() const;  // used by entries
};

// All boundaries, by position of the upstream chunk; `ranges` by position. The cache limit of a
// process is shared equally by its boundaries; a boundary gets the smaller limit of its two ends,
// so that both evict the same samples. A single stage has no boundaries.
std::vector<PlannedBoundary> plan_boundaries(const recipe::Recipe& recipe,
                                             const models::ModelDescription& model,
                                             const std::vector<models::LayerRange>& ranges,
                                             const tensors::TokenFile& tokens);

// Cache bytes in memory of all boundaries of a stage.
std::int64_t cache_bytes_of(const std::vector<PlannedBoundary>& boundaries, std::size_t stage,
                            std::size_t stages);

}  // namespace strait::planner

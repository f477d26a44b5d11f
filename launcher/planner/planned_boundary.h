#pragma once

#include <cstdint>
#include <vector>

#include "framework/tensors/token_file.h"
#include "launcher/planner/boundary_forecast.h"
#include "launcher/recipe/recipe.h"
#include "models/model_description.h"

namespace strait::planner {

// What crosses between two chunks that follow each other on the data's way, in every replica alike,
// and what both ends remember of it. A value.
struct PlannedBoundary {
  BoundaryLoad load;
  BoundaryBytes bytes;           // of a micro-batch
  double hits = 0;               // share of visits behind the first epoch that find their sample
  std::int64_t entry_bytes = 0;  // of a row that is remembered; 0: none is
  std::int64_t cache_bytes = 0;  // memory for entries at each end, at the most; beyond it
  std::int64_t cache_disk_bytes = 0;
  std::int64_t cached_rows = 0;  // that fit in both, of all there are

  double forward_bytes() const {  // behind the first epoch
    return hits * bytes.known_forward + (1 - hits) * bytes.first_forward;
  }
  std::int64_t bytes_in_memory() const;  // of entries
};

// By the place of the upper chunk, for ranges by place: of one chunk a stage that is the stage. Of
// what a process may remember, each of its boundaries gets an equal share; a boundary's limit is
// what the narrower of its ends can give, so that both forget the same samples. One stage alone has
// no boundaries, however many chunks.
std::vector<PlannedBoundary> plan_boundaries(const recipe::Recipe& recipe,
                                             const models::ModelDescription& model,
                                             const std::vector<models::LayerRange>& ranges,
                                             const tensors::TokenFile& tokens);

// Of all boundaries that this one of so many stages is an end of.
std::int64_t cache_bytes_of(const std::vector<PlannedBoundary>& boundaries, std::size_t stage,
                            std::size_t stages);

}  // namespace strait::planner

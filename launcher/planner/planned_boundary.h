#pragma once

#include "framework/codec/settings.h"
#include "framework/data/data_preparation.h"
#include "framework/data/token_file.h"
#include "launcher/recipe/plan.h"
#include "launcher/recipe/recipe.h"
#include "models/model_description.h"

namespace strait::planner {

// What one boundary carries, averaged over the data.
struct BoundaryLoad {
  std::int64_t width = 0;     // values per token
  std::int64_t rows = 0;      // of a micro-batch
  double tokens_per_row = 0;  // without padding
  double documents_per_row = 1;
};

// Bytes of one micro-batch's message, with its header, without the framing of the link.
struct BoundaryBytes {
  double first_forward = 0;  // activations on cache misses
  double known_forward = 0;  // activations on cache hits
  double backward = 0;
};

// Whether the codec of a direction caches samples, and the number of directions that do. No
// direction caches if the only codecs that would are those that skip it when samples do not repeat.
bool caches_samples(const codec::CodecSettings& settings, codec::Direction direction);
std::int64_t cached_directions(const codec::CodecSettings& settings, bool samples_return);

// The sizes of the encoders' messages for a load. `auto` is forecast at its fewest bits, and
// gradients as values, because fewer bytes depend on measurements that a plan does not have. Pure.
BoundaryBytes boundary_bytes(const codec::CodecSettings& settings, const BoundaryLoad& load);

// A boundary between two adjacent chunks, equal in every replica, with its activation cache.
struct PlannedBoundary {
  BoundaryLoad load;
  BoundaryBytes bytes;       // of a micro-batch
  double hits = 0;           // cache hit rate after the first epoch
  codec::CacheLimits cache;  // of each caching direction
  std::int64_t cached_directions = 0;

  double forward_bytes() const {  // after the first epoch
    return hits * bytes.known_forward + (1 - hits) * bytes.first_forward;
  }
};

// All boundaries by position of the upstream chunk; `ranges` by position. The boundaries of a
// process share its cache limit equally. A boundary gets the smaller limit of its two ends, so that
// both evict the same samples. A single stage has no boundaries. `samples_return`: the run is
// longer than one epoch.
std::vector<PlannedBoundary> plan_boundaries(const recipe::Recipe& recipe,
                                             const models::ModelDescription& model,
                                             const std::vector<models::LayerRange>& ranges,
                                             const data::TokenFile& tokens, bool samples_return);

// Cache memory of all boundaries of a stage.
std::int64_t cache_bytes_of(const std::vector<PlannedBoundary>& boundaries, std::size_t stage,
                            std::size_t stages);

// Bytes per step of a tied table if embedding and LM head are on different stages: the rows that a
// step looks up, see stages/link_tie.h.
struct TieBytes {
  double gradients = 0;  // from the first stage
  double values = 0;     // to the first stage
};

// Mean over the first few steps of replica 0. Nullopt: no weight is on two stages.
std::optional<TieBytes> tie_bytes(const plan::Plan& plan, const models::ModelDescription& model,
                                  const data::PreparedData& train);

// Adds one link per replica.
void plan_tie_links(plan::Plan& plan, const TieBytes& bytes);

}  // namespace strait::planner

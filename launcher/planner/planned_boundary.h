#pragma once

#include "framework/codec/settings.h"
#include "framework/data/data_preparation.h"
#include "framework/data/token_file.h"
#include "launcher/planner/planned_pipeline.h"
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
  std::int64_t slices = 1;  // of each row, sent one by one
};

// Bytes of one micro-batch's messages, one a slice, with their headers, without the framing of the
// link.
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
  codec::CacheLimits cache;  // of each caching direction; a slice of a row has an entry of its own
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

// Codecs whose cost in quality was measured (tests/bench/RESULTS.md): percent of the evaluation
// loss above raw float32, in runs of about a hundred and of 1,500 steps.
struct MeasuredCodec {
  codec::CodecSettings settings;
  double loss_of_short_run = 0;
  double loss_of_long_run = 0;

  double loss(std::int64_t steps) const;
};

// Those that cost at most `budget` percent in a run of this length, the least first. Pure.
std::vector<MeasuredCodec> codecs_within(double budget, std::int64_t steps);

// Replaces `codec.budget` in the recipe of `open` by the codecs and bits within it whose forecast
// step is the shortest; among steps of about the same length, those that cost least. Returns a
// sentence that says what was chosen and why. `open`: the plan before its layout.
std::string choose_codec(plan::Plan& open, const PipelineQuestion& question);

// One sentence where boundaries are raw and a codec of few bits makes a step clearly shorter, with
// what such bits have cost by measurement. Else empty.
std::string codec_note(const plan::Plan& plan, const plan::Plan& open,
                       const PipelineQuestion& question);

}  // namespace strait::planner

#include "launcher/plan/planned_boundary.h"

#include <fmt/format.h>

#include <algorithm>

#include "framework/codec/codecs.h"
#include "launcher/user_error.h"

namespace strait::launcher {
namespace {

std::int64_t share_of_cache(std::int64_t bytes, const Recipe& recipe, std::size_t boundary) {
  const auto boundaries = static_cast<std::size_t>(recipe.pipeline.stages - 1);
  const std::int64_t upper_ends = boundary > 0 ? 2 : 1;
  const std::int64_t lower_ends = boundary + 1 < boundaries ? 2 : 1;
  return bytes / std::max(upper_ends, lower_ends);
}

void plan_cache(const Recipe& recipe, std::int64_t rows, std::size_t at,
                PlannedBoundary& boundary) {
  boundary.entry_bytes = entry_bytes(recipe.codec, recipe.data.row, boundary.load.width);
  boundary.cache_bytes = share_of_cache(recipe.codec.cache, recipe, at);
  boundary.cache_disk_bytes = share_of_cache(recipe.codec.cache_disk, recipe, at);
  boundary.cached_rows = std::min(rows, boundary.cache_bytes / boundary.entry_bytes +
                                            boundary.cache_disk_bytes / boundary.entry_bytes);
  // Every sample waits for its next visit across an epoch's end, where only so many have a place:
  // no rule of eviction does better, and whoever is visited again last giving way does as well.
  boundary.hits = static_cast<double>(boundary.cached_rows) / static_cast<double>(rows);
}

// What a recipe says of our own codecs is checked where it is read; of a plugin's, here.
void check_codec_of_gradients(const Recipe& recipe) {
  if (codec::codecs().named(recipe.codec.backward).for_gradients) return;
  throw UserError(ExitCode::bad_input,
                  fmt::format("codec.backward = \"{}\" is a codec for activations alone; name "
                              "another one for gradients",
                              recipe.codec.backward));
}

}  // namespace

std::int64_t PlannedBoundary::bytes_in_memory() const {
  return entry_bytes == 0 ? 0 : std::min(cached_rows, cache_bytes / entry_bytes) * entry_bytes;
}

std::vector<PlannedBoundary> plan_boundaries(const Recipe& recipe,
                                             const models::ModelDescription& model,
                                             const std::vector<models::LayerRange>& ranges,
                                             const store::TokenFile& tokens) {
  check_codec_of_gradients(recipe);
  BoundaryLoad load;
  load.rows = *recipe.train.micro_batch;
  const auto rows = static_cast<double>(tokens.rows());
  const std::int64_t replica_rows = tokens.rows() / recipe.pipeline.replicas;
  load.documents_per_row = 0;
  for (std::int64_t row = 0; row < tokens.rows(); ++row) {
    const auto sample = static_cast<store::SampleId>(row);
    load.tokens_per_row += static_cast<double>(tokens.length(sample)) / rows;
    load.documents_per_row += static_cast<double>(tokens.document_lengths(sample).size()) / rows;
  }
  std::vector<PlannedBoundary> boundaries;
  for (std::size_t i = 0; i + 1 < ranges.size(); ++i) {
    load.width = model.layers[static_cast<std::size_t>(ranges[i].last)].output_width;
    PlannedBoundary boundary;
    boundary.load = load;
    boundary.bytes = boundary_bytes(recipe.codec, load);
    if (remembers(recipe.codec)) plan_cache(recipe, replica_rows, i, boundary);
    boundaries.push_back(boundary);
  }
  return boundaries;
}

std::int64_t cache_bytes_of(const std::vector<PlannedBoundary>& boundaries, std::size_t stage) {
  std::int64_t sum = 0;
  if (stage > 0) sum += boundaries[stage - 1].bytes_in_memory();
  if (stage < boundaries.size()) sum += boundaries[stage].bytes_in_memory();
  return sum;
}

}  // namespace strait::launcher

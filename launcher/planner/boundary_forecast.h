#pragma once

#include <cstdint>

#include "launcher/recipe/recipe.h"

namespace strait::planner {

// What goes over one boundary, on average over the data.
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

// What the codecs of a recipe make of a load. `auto` is taken for what it does at its fewest bits:
// its choice follows measurements that no plan has. Pure.
BoundaryBytes boundary_bytes(const recipe::Recipe::Codec& recipe, const BoundaryLoad& load);

// Whether activations are sent as changes since the sample's last visit.
bool remembers(const recipe::Recipe::Codec& codec);

// Bytes in which one end remembers a row of this length.
std::int64_t entry_bytes(const recipe::Recipe::Codec& codec, std::int64_t row_tokens,
                         std::int64_t width);

}  // namespace strait::planner

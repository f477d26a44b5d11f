#pragma once

#include <cstdint>
#include <vector>

#include "stages/batch_source.h"

namespace strait::stages {

// The rows of the token table that a phase looks up, each once. A pure function of the data: both
// ends of a tied weight know which rows cross and when, so no row numbers are sent.
struct LookedUpRows {
  std::vector<std::int64_t> tokens;  // distinct, ascending
  // By micro-batch: indices in `tokens` of the rows that it is the first, or the last, to look up.
  std::vector<std::vector<std::int64_t>> first_use;
  std::vector<std::vector<std::int64_t>> last_use;
};

LookedUpRows looked_up_rows(const BatchSource& source, const Phase& phase, int micro_batches);

}  // namespace strait::stages

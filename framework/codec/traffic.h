#pragma once

#include <cstdint>

namespace strait::codec {

// Counters of one direction of one boundary at one end; sums since the codec was constructed. A
// step's share is the difference of two copies.
struct Traffic {
  std::uint64_t raw_bytes = 0;      // the same values in float32
  std::uint64_t payload_bytes = 0;  // as encoded, without the message's header
  std::uint64_t rows = 0;
  std::uint64_t hits = 0;          // rows sent as a change
  std::uint64_t first_visits = 0;  // cache misses: rows sent in full and cached
  std::uint64_t evictions = 0;
  std::uint64_t resends = 0;         // rows whose two ends differed and were sent whole
  std::uint64_t refused_rows = 0;    // rows with values that are not finite
  std::uint64_t cache_bytes = 0;     // held now; not a sum
  double value_squares = 0;          // encoder only: kernels::SquareSums
  double change_squares = 0;         // of rows that had a base
  double changed_value_squares = 0;  // value_squares of those same rows
  double error_squares = 0;
  bool operator==(const Traffic&) const = default;
};

}  // namespace strait::codec

#pragma once

#include <cmath>

#include "framework/trace/traffic_metrics.h"

namespace strait::codec {

// Counters of one direction of one boundary at one end, summed since the codec was constructed. A
// new counter also needs an entry in kTrafficSums and, if users see it, in Traffic::metrics.
struct Traffic {
  std::uint64_t raw_bytes = 0;      // of the same values in float32
  std::uint64_t payload_bytes = 0;  // encoded, without the message header
  std::uint64_t messages = 0;
  std::uint64_t rows = 0;
  std::uint64_t hits = 0;          // rows sent as a change
  std::uint64_t cache_misses = 0;  // rows sent in full and cached
  std::uint64_t evictions = 0;
  std::uint64_t resends = 0;         // rows whose two ends differed and that were sent whole
  std::uint64_t refused_rows = 0;    // rows with values that are not finite
  std::uint64_t cache_bytes = 0;     // held now; not a sum
  double value_squares = 0;          // encoder only: kernels::SquareSums
  double change_squares = 0;         // of rows that had a base
  double changed_value_squares = 0;  // value_squares of the same rows
  double error_squares = 0;
  // Of the gradients that an `auto` encoder sends (GradientNoise). Sums over steps.
  double noise_squares = 0;     // of the sum over a step's rows: its variation from row to row
  double signal_squares = 0;    // of that sum without its noise
  double gradient_squares = 0;  // of all values of the same steps
  double compared_squares = 0;  // <value, value> of compared rows
  double kept_squares = 0;      // <decoded, value> of the same rows
  bool operator==(const Traffic&) const = default;

  // The difference to `before`, an earlier reading of the same codec.
  Traffic since(const Traffic& before) const;
  // The values that users see. A ratio of norms is absent if there were no values to compare.
  trace::BoundaryMetrics metrics() const;
};

// All counters except cache_bytes, which is a level.
inline constexpr std::tuple kTrafficSums = {&Traffic::raw_bytes,
                                            &Traffic::payload_bytes,
                                            &Traffic::messages,
                                            &Traffic::rows,
                                            &Traffic::hits,
                                            &Traffic::cache_misses,
                                            &Traffic::evictions,
                                            &Traffic::resends,
                                            &Traffic::refused_rows,
                                            &Traffic::value_squares,
                                            &Traffic::change_squares,
                                            &Traffic::changed_value_squares,
                                            &Traffic::error_squares,
                                            &Traffic::noise_squares,
                                            &Traffic::signal_squares,
                                            &Traffic::gradient_squares,
                                            &Traffic::compared_squares,
                                            &Traffic::kept_squares};

inline Traffic Traffic::since(const Traffic& before) const {
  Traffic share = *this;
  const auto subtract = [&](auto member) { share.*member -= before.*member; };
  std::apply([&](auto... members) { (subtract(members), ...); }, kTrafficSums);
  return share;
}

inline trace::BoundaryMetrics Traffic::metrics() const {
  const auto ratio_of_norms = [](double part_squares, double whole_squares) {
    return whole_squares > 0 ? std::optional(std::sqrt(part_squares / whole_squares))
                             : std::nullopt;
  };
  trace::BoundaryMetrics metrics;
  metrics.raw_bytes = raw_bytes;
  metrics.sent_bytes = payload_bytes;
  metrics.change = ratio_of_norms(change_squares, changed_value_squares);
  metrics.error = ratio_of_norms(error_squares, value_squares);
  metrics.cache_bytes = cache_bytes;
  metrics.hits = hits;
  metrics.cache_misses = cache_misses;
  metrics.evictions = evictions;
  metrics.resends = resends;
  return metrics;
}

}  // namespace strait::codec

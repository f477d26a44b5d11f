#pragma once

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "framework/trace/metric.h"

// To add a metric of a boundary: add a member and its row here, and measure it
// (framework/codec/traffic.h, sample_encoder.cpp). Metrics of the exchange between replicas are
// measured in launcher/worker/stage_reporter.cpp. Then add the row that the test of docs/metrics.md
// prints.
namespace strait::trace {

// How many times fewer bytes; NaN where nothing was sent, or nothing would have been.
inline double bytes_ratio(std::uint64_t plain, std::uint64_t sent) {
  return sent == 0 || plain == 0 ? std::numeric_limits<double>::quiet_NaN()
                                 : static_cast<double>(plain) / static_cast<double>(sent);
}

// One direction of one boundary in one step, counted by its sender; summed over the steps of a run.
struct BoundaryMetrics {
  std::string boundary;   // "0.0>1.0"
  std::string direction;  // "forward": activations, "backward": gradients
  std::uint64_t raw_bytes = 0;
  std::uint64_t sent_bytes = 0;
  std::optional<double> change;
  std::optional<double> error;
  std::uint64_t cache_bytes = 0;
  std::uint64_t hits = 0;
  std::uint64_t cache_misses = 0;
  std::uint64_t evictions = 0;
  std::uint64_t resends = 0;
  bool operator==(const BoundaryMetrics&) const = default;

  // Activations come first in tables.
  std::pair<bool, std::string> order() const { return {direction != "forward", boundary}; }
};
inline double compression_ratio(const BoundaryMetrics& boundary) {
  return bytes_ratio(boundary.raw_bytes, boundary.sent_bytes);
}

template <>
inline constexpr std::tuple kMetrics<BoundaryMetrics> = {
    metric(&BoundaryMetrics::boundary, {.key = "boundary",
                                        .unit = Unit::name,
                                        .combine = Combine::key,
                                        .meaning = "sender>receiver",
                                        .column = "boundary"}),
    metric(&BoundaryMetrics::direction, {.key = "direction",
                                         .unit = Unit::name,
                                         .combine = Combine::key,
                                         .meaning = "forward: activations, backward: gradients",
                                         .column = "direction"}),
    metric(&BoundaryMetrics::raw_bytes, {.key = "raw_bytes",
                                         .unit = Unit::bytes,
                                         .meaning = "the same values in float32",
                                         .column = "float32"}),
    metric(&BoundaryMetrics::sent_bytes, {.key = "sent_bytes",
                                          .unit = Unit::bytes,
                                          .meaning = "as encoded, without headers and framing",
                                          .column = "sent"}),
    column<BoundaryMetrics>({.unit = Unit::ratio, .column = "ratio"}, compression_ratio),
    metric(&BoundaryMetrics::change, {.key = "change",
                                      .unit = Unit::share,
                                      .combine = Combine::latest,
                                      .meaning = "‖a − m‖ / ‖a‖ of samples with a cached value m",
                                      .column = "change"}),
    metric(&BoundaryMetrics::error, {.key = "error",
                                     .unit = Unit::share,
                                     .combine = Combine::latest,
                                     .meaning = "‖error‖ / ‖a‖ of what is received",
                                     .column = "error"}),
    metric(&BoundaryMetrics::cache_bytes, {.key = "cache_bytes",
                                           .unit = Unit::bytes,
                                           .combine = Combine::latest,
                                           .meaning = "held in the sender's activation cache",
                                           .column = "cached"}),
    metric(&BoundaryMetrics::hits,
           {.key = "hits", .unit = Unit::rows, .meaning = "sent as a change", .column = "hits"}),
    metric(&BoundaryMetrics::cache_misses, {.key = "first_visits",
                                            .unit = Unit::rows,
                                            .meaning = "cache misses: sent in full and cached",
                                            .column = "misses"}),
    metric(&BoundaryMetrics::evictions, {.key = "evictions",
                                         .unit = Unit::rows,
                                         .meaning = "removed from the cache to make room",
                                         .column = "evicted"}),
    metric(&BoundaryMetrics::resends, {.key = "resends",
                                       .unit = Unit::rows,
                                       .meaning = "whose caches at the two ends differed",
                                       .column = "resent"})};

// The exchange of a process with the replicas of its stage in a step; summed over a run's steps.
struct SyncMetrics {
  std::string process;  // "1.0"
  std::uint64_t rounds = 0;
  std::uint64_t sent_bytes = 0;
  std::uint64_t bfloat16_bytes = 0;
  double round_seconds = 0;
  double waited_seconds = 0;
  std::optional<double> distance = {};
  bool operator==(const SyncMetrics&) const = default;

  std::string order() const { return process; }
};
inline double sync_ratio(const SyncMetrics& sync) {
  return bytes_ratio(sync.bfloat16_bytes, sync.sent_bytes);
}
inline double seconds_per_round(const SyncMetrics& sync) {
  return sync.round_seconds / static_cast<double>(std::max<std::uint64_t>(sync.rounds, 1));
}

template <>
inline constexpr std::tuple kMetrics<SyncMetrics> = {
    metric(&SyncMetrics::process, {.key = "process",
                                   .unit = Unit::name,
                                   .combine = Combine::key,
                                   .meaning = "stage.replica",
                                   .column = "replica"}),
    metric(&SyncMetrics::rounds,
           {.key = "rounds", .unit = Unit::rounds, .meaning = "applied", .column = "rounds"}),
    metric(&SyncMetrics::sent_bytes, {.key = "sent_bytes",
                                      .unit = Unit::bytes,
                                      .meaning = "on the wire, with framing and retransmissions",
                                      .column = "sent"}),
    metric(&SyncMetrics::bfloat16_bytes,
           {.key = "bfloat16_bytes",
            .unit = Unit::bytes,
            .meaning = "an all-reduce of the whole stage in bfloat16 would send over links",
            .column = "bfloat16 all-reduce"}),
    column<SyncMetrics>({.unit = Unit::ratio, .column = "ratio"}, sync_ratio),
    metric(&SyncMetrics::round_seconds,
           {.key = "round_seconds",
            .unit = Unit::seconds,
            .meaning = "of these rounds, from opening to the last byte"}),
    column<SyncMetrics>({.unit = Unit::seconds, .column = "a round"}, seconds_per_round),
    metric(&SyncMetrics::waited_seconds, {.key = "waited_seconds",
                                          .unit = Unit::seconds,
                                          .meaning = "for rounds, instead of computing",
                                          .column = "waited"}),
    metric(&SyncMetrics::distance,
           {.key = "distance",
            .unit = Unit::share,
            .combine = Combine::latest,
            .meaning = "‖w − mean‖ / ‖mean‖ of weights before a round; null: replicas are equal",
            .column = "apart"})};

}  // namespace strait::trace

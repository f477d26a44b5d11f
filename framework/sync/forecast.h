#pragma once

#include "framework/sync/layout.h"
#include "framework/sync/membership.h"
#include "framework/sync/sync_settings.h"

// What a method costs one replica of a stage, from settings and shapes alone.
namespace strait::sync {

struct Forecast {
  // Bytes sent to other replicas in a step, frame headers included: the mean over the replicas and
  // the run. Rounds that only a read of the model causes are not counted.
  double step_bytes = 0;
  // In the heaviest step of the run, except for a round that closes it.
  double round_bytes = 0;
  // Memory for the method's own slots, and snapshots of them.
  double slot_bytes = 0;
  // Memory for frames, at most: what a round holds until it is applied, and what links carry.
  double frame_bytes = 0;
  // Steps from an update of one replica until the others' model has it, on average.
  double staleness = 0;
};

// Processor time that a method takes in a step, on average, in units of the time to copy the
// stage's weights once (4 bytes a value, on one thread). tests/bench/coding_bench.cpp measures it.
// It hardly depends on the number of replicas, since each reduces its own parts only.
struct CodingCost {
  // encode, reduce and decode, concurrent with the trainer.
  double engine = 0;
  // apply, which the trainer waits for and its threads share.
  double trainer = 0;
};

// The cost of plain means.
inline constexpr CodingCost kPlainCodingCost = {.engine = 2.4, .trainer = 0.9};

// A run that a method forecasts: its settings, the stage's layout and the number of members; and
// the bytes that exchanges take, frame headers included.
struct ForecastInput {
  const SyncSettings& settings;
  const Layout& layout;
  double members = 1;

  double values() const { return static_cast<double>(layout.size()); }
  double others() const { return members - 1; }
  // Updates between rounds.
  double every(std::int64_t unless_set) const {
    return static_cast<double>(settings.every_or(unless_set));
  }
  // bucket_values() of values of `bits` bits.
  double bucket(double bits) const;

  // Of `frames` frames without their payload.
  static double frame_bytes(double frames);
  // A shard_reduce of ranges that take `code_bytes` in all.
  double shard_reduce_bytes(double code_bytes, double ranges) const;
  // A shard_reduce of `count` values in buckets.
  double bucketed_bytes(double count, double bits, double bucket) const;
  // The messages that end a round: each member reports to every other that it holds all of it.
  double ready_bytes() const { return frame_bytes(others()); }
};

// A method with one equal round in every step, whose results are fresh.
Forecast every_step(double bytes);

// The cost of `pass`, which a method makes once in settings.every updates.
CodingCost once_in(std::int64_t every, std::int64_t unless_set, const CodingCost& pass);

// By the offer of settings.method: its own forecast if it has one, otherwise from its plans and its
// wire_bits. SyncError (setting) as make_method().
Forecast forecast(const SyncSettings& settings, const Layout& layout, std::size_t members);
// Of a replica in one of these groups: sums in its group take no link, and only the leader of a
// group exchanges with other groups.
Forecast forecast(const SyncSettings& settings, const Layout& layout, const ReplicaGroups& groups,
                  std::uint32_t replica);

// Whether a step waits for a round that opens in it. By the first round, as all others are like it.
bool step_waits_for_rounds(const SyncSettings& settings, const Layout& layout, std::size_t members);

// By the offer of settings.method; kPlainCodingCost if it has none.
CodingCost coding_cost(const SyncSettings& settings);

}  // namespace strait::sync

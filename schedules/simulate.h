#pragma once

#include <limits>

#include "schedules/action.h"

namespace strait::schedules {

// Costs of one micro-batch, or of one of its slices, in a chunk. A stage usually has one chunk.
// Seconds are those of a stage whose threads have a core each.
struct ChunkCost {
  double forward_seconds = 0;
  double backward_seconds = 0;         // the whole backward
  double weight_gradient_seconds = 0;  // the part of it that a list with split backwards does later
  double update_seconds = 0;           // once per step; a stage's chunks add up
  double bytes_in_flight = 0;          // activations held from a forward to its backward
  double weight_gradient_bytes = 0;    // held from a split backward to its weight gradient
};

// The link between adjacent chunks: two directions with separate bandwidth.
struct LinkCost {
  double forward_bytes = 0;  // one micro-batch's activation, as sent
  double backward_bytes = 0;
  double forward_bytes_per_second = std::numeric_limits<double>::infinity();
  double backward_bytes_per_second = std::numeric_limits<double>::infinity();
  double latency_seconds = 0;  // one-way latency
  // Of the sender's line, which all that a stage sends shares.
  double forward_uplink_bytes_per_second = std::numeric_limits<double>::infinity();
  double backward_uplink_bytes_per_second = std::numeric_limits<double>::infinity();
  // What a thread of the link computes at each end, to encode a message before it is sent and to
  // decode it before it is used.
  double forward_coding_seconds = 0;
  double backward_coding_seconds = 0;
  // What another thread at each end computes while bytes cross: encryption, and the kernel's work.
  double transport_seconds_per_byte = 0;
};

// Which cores do the work of a stage.
struct StagePlace {
  std::size_t machine = 0;  // that computes
  double threads = 1;       // with which it computes
  std::size_t host = 0;     // machine on which its links have their threads
};

// Machines, or GPUs, whose cores several stages share.
struct Machines {
  std::vector<double> cores;       // of each
  std::vector<StagePlace> stages;  // empty: each stage has as many cores as it has threads
};

// An action with its start and end, seconds from the start of the step.
struct ActionSpan {
  StageIndex stage{};
  Action action;
  double start = 0;
  double end = 0;
};

// The time a message occupies link `from` -> `to`; it arrives `latency` after `end`.
struct TransferSpan {
  StageIndex from{};
  StageIndex to{};
  ChunkIndex chunk{};  // that sent it
  MicroBatch micro_batch{};
  double start = 0;
  double end = 0;
};

struct StageForecast {
  double busy_seconds = 0;  // with what it waits for cores that others have
  double idle_seconds = 0;
  int peak_in_flight = 0;  // micro-batches between their forward and the end of their backward, or
                           // of their weight gradient; in each chunk by itself
  double peak_bytes = 0;
};

// A deadlocked stage: the action that it cannot start, and why.
struct BlockedStage {
  StageIndex stage{};
  Action action;
  std::string reason;
};

struct Forecast {
  double seconds = 0;  // meaningless when something is blocked
  std::vector<StageForecast> stages;
  std::vector<ActionSpan> spans;
  std::vector<TransferSpan> transfers;
  std::vector<BlockedStage> blocked;  // empty: the lists complete

  bool completes() const { return blocked.empty(); }
};

// Simulates one step: lists[s] of stage s; costs and links by chunk position (see
// pipeline_shape.h), links[p] between positions p and p + 1. With one chunk a stage, positions are
// stages. Pure, any thread.
//
// The model: a stage runs its list in order, one action at a time, and waits only for the message
// that an action needs. Sending takes no time of the stage. Messages from one stage to another are
// sent one at a time, in the order in which they were produced, whichever chunks they connect. A
// message also takes its share of the sender's line, and waits while that is taken. All threads of
// a machine that are busy at a time, of stages and of links, have equal parts of its cores.
// Backward m needs forward m of its own chunk and the gradient from downstream. The update starts
// when every stage has finished, because clipping needs all gradient norms. Received messages that
// are not used yet do not count as in flight.
//
// A deadlock is not an error here: the forecast lists the blocked stages. Throws
// std::invalid_argument for input that cannot be simulated: sizes that do not match, an action
// twice in one list, a chunk without costs, negative costs.
Forecast simulate(std::span<const ActionList> lists, std::span<const ChunkCost> costs,
                  std::span<const LinkCost> links, const Machines& machines = {});

// Throws what simulate() throws for costs, of this number of stages.
void check_costs(std::size_t stages, std::span<const ChunkCost> costs,
                 std::span<const LinkCost> links, const Machines& machines);

// One line: "stage 0 stops before backward 0, which needs ...; stage 1 ...".
std::string describe(std::span<const BlockedStage> blocked);

}  // namespace strait::schedules

#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "framework/net/link.h"
#include "framework/store/sample.h"

namespace strait::stages {

// Of one parameter's gradient.
struct SquaredNorm {
  std::uint32_t parameter = 0;  // its place among all of the model's
  double value = 0;
  bool operator==(const SquaredNorm&) const = default;
};

// What the processes of one replica tell each other when a step's backwards are done (or an
// evaluation's forwards: then there are no norms). It travels up the pipeline, each stage adding
// its part, so that it costs no time: what lies downstream has finished earlier anyway.
struct StepReport {
  store::Step step{};
  double loss = 0;                         // sum over target tokens divided by their number
  std::int64_t target_tokens = 0;          // what the loss was divided by
  std::int64_t tokens = 0;                 // of all rows, targets or not
  std::vector<SquaredNorm> squared_norms;  // of all owned parameters so far, in their order
  bool parted = false;  // a replica has left: not everybody holds what this step is to land
};

// What the head of the pipeline decided; it travels down, ahead of the next step's activations.
struct StepVerdict {
  store::Step step{};
  double loss = 0;
  std::int64_t target_tokens = 0;
  std::int64_t tokens = 0;
  double gradient_norm = 0;
  double gradient_factor = 1;  // clipping
  bool skip = false;           // a loss or gradient was not finite: nobody updates
  bool stop = false;           // somebody asked to stop: checkpoint and leave after this step
  std::uint32_t epoch = 0;     // of the membership, from here on
  bool save = false;           // somebody asked for a checkpoint: behind this step, or now
  bool again = false;          // nothing is decided: sync and report once more, in that epoch
};

// Adds a stage's own norms to those from below, in the model's order of parameters: sums of floats
// depend on it.
void add_norms(StepReport& report, const std::vector<SquaredNorm>& norms);

// The clipping rule and the finite vote: a pure function, so that every pipeline decides alike.
StepVerdict decide(const StepReport& report, double clip, bool stop);

// Bytes for a boundary link (kind note). Reading throws codec::CodecError.
net::Frame to_frame(const StepReport& report);
net::Frame to_frame(const StepVerdict& verdict);
StepReport read_report(std::span<const std::byte> frame);
StepVerdict read_verdict(std::span<const std::byte> frame);

}  // namespace strait::stages

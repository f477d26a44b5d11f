#pragma once

#include <span>

#include "framework/fields/fields.h"
#include "framework/net/link.h"
#include "framework/store/sample.h"

namespace strait::stages {

// The purpose of a pass through the pipeline. In training, `step` counts optimizer updates from 0;
// in an evaluation it is the number of steps trained so far.
struct Phase {
  store::Step step{};
  bool training = true;  // false: forwards only
  // Adapters are off, and the samples are those of a training step or of an evaluation. Comes
  // before that phase.
  enum class Reference : std::uint8_t { none, training, evaluation } reference = Reference::none;

  bool reads_training() const { return training || reference == Reference::training; }
  bool operator==(const Phase&) const = default;
};

// The squared norm of one parameter's gradient.
struct SquaredNorm {
  std::uint32_t parameter = 0;  // index among all parameters of the model
  double value = 0;
  bool operator==(const SquaredNorm&) const = default;
};

// The result of a step's backwards (or of an evaluation's forwards, without norms) in one replica.
// It travels up the pipeline, and every stage adds its norms. This delays no stage, because stages
// further downstream have finished their backwards earlier.
struct StepReport {
  store::Step step{};
  double loss = 0;                         // sum over target tokens divided by their number
  std::int64_t target_tokens = 0;          // the divisor of the loss; of preferences the pairs
  double margin = 0;                       // of preferences: a mean over pairs, as the loss
  double accuracy = 0;                     // share of pairs whose margin is above zero
  std::int64_t tokens = 0;                 // of all rows, whether targets or not
  std::vector<SquaredNorm> squared_norms;  // of all owned parameters so far, in the model's order
  // A replica was evicted before every process had all data of this step's sync round.
  bool round_incomplete = false;
  // Not sent: an evaluation or checkpoint follows, or the end, so all replicas must agree by now.
  bool joint = true;
  bool operator==(const StepReport&) const = default;
};

// The decision of the first stage. It travels down, ahead of the next step's activations.
struct StepDecision {
  store::Step step{};
  double loss = 0;
  double margin = 0;
  double accuracy = 0;
  std::int64_t target_tokens = 0;
  std::int64_t tokens = 0;
  double gradient_norm = 0;
  double gradient_factor = 1;  // clipping: every gradient is multiplied by it
  bool skip = false;           // a loss or gradient was not finite: no update on any stage
  bool hold = false;           // skipped, perhaps by another replica: no checkpoint after this step
  bool own = false;            // loss, tokens and norm are those of the own replica's rows
  bool stop = false;           // a stop was requested: save a checkpoint and end after this step
  std::uint32_t epoch = 0;     // of the membership from here on
  bool save = false;           // a checkpoint was requested: save one after this step
  bool retry = false;          // no decision: sync and report again with the members of `epoch`
  bool operator==(const StepDecision&) const = default;
};

// Adds a stage's own norms to those of the stages below it, and sorts them by parameter, because a
// sum of floats depends on its order.
void add_norms(StepReport& report, const std::vector<SquaredNorm>& norms);

// More than the parameters of any model.
inline constexpr std::size_t kMaxNorms = 1 << 20;

void describe(auto& f, fields::Is<SquaredNorm> auto& m) {
  f("parameter", m.parameter), f("value", m.value);
}
void describe(auto& f, fields::Is<StepReport> auto& m) {
  f("step", m.step), f("loss", m.loss), f("target_tokens", m.target_tokens);
  f("margin", m.margin), f("accuracy", m.accuracy);
  f("tokens", m.tokens), f("round_incomplete", m.round_incomplete);
  f("squared_norms", fields::at_most(m.squared_norms, kMaxNorms));
}

// Bytes for a boundary link (kind note). Reading throws fields::MessageError.
net::Frame to_frame(const StepReport& report);
net::Frame to_frame(const StepDecision& decision);
StepReport read_report(std::span<const std::byte> frame);
StepDecision read_decision(std::span<const std::byte> frame);

}  // namespace strait::stages

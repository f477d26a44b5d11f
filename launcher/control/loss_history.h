#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "framework/store/sample.h"

namespace strait::control {

// What the losses of a run say of its weights. Pure.
//
// The loss of a step is that of the weights before it. A loss is sound if it is finite (of a step
// its gradient, too: it changed the weights) and has not diverged: it is not above that of a guess
// among all tokens after it was below. A step that is not finite changes no weight, so a sound one
// proves the weights of every checkpoint before it to be good.
class LossHistory {
 public:
  // `guess`: the loss of a guess, ln(vocabulary). 0: not known, and no loss counts as diverged.
  explicit LossHistory(double guess = 0) : guess_(guess) {}

  struct Loss {
    store::Step step{};
    double value = 0;          // not finite: the loss is not
    std::int64_t targets = 0;  // that it is the mean over
  };
  // The loss of the weights before this step, and whether they were updated.
  void trained(const Loss& loss, bool skipped);
  // The loss of the weights after this step. May come before trained() of the same step.
  void evaluated(const Loss& loss);
  // The run goes on from the checkpoint of this step.
  void go_back(store::Step step);

  // Checkpoints of this step and of earlier ones are known to be good. nullopt: no loss was finite.
  std::optional<store::Step> good() const { return good_; }
  bool is_good(store::Step checkpoint) const { return good_ && checkpoint <= *good_; }
  // A loss of its weights was seen, or of what they became.
  bool is_seen(store::Step checkpoint) const {
    return checkpoint < trained_ || is_evaluated(checkpoint);
  }
  // The latest loss is one of its weights, and it was not finite.
  bool is_bad(store::Step checkpoint) const { return not_finite_ && !is_good(checkpoint); }

  // Steps that changed no weight, up to the latest one. Begins anew with go_back().
  int skipped_in_a_row() const { return skipped_; }
  // Why the latest loss is not sound: a sentence. Empty: it is.
  std::string divergence() const;

 private:
  bool is_evaluated(store::Step step) const { return evaluated_ && step <= *evaluated_; }
  bool is_sound(const Loss& loss) const;
  void add(const Loss& loss, store::Step weights);
  void add_better(const Loss& loss);

  double guess_;
  store::Step trained_{};                 // the latest step
  std::optional<store::Step> evaluated_;  // the latest evaluation
  std::optional<store::Step> good_;
  std::optional<Loss> first_better_;  // than a guess
  std::optional<Loss> best_;          // of those that are better
  std::optional<Loss> latest_;
  bool not_finite_ = false;  // the latest loss, or its gradient
  int skipped_ = 0;
};

// Of the run in this directory, from metrics.jsonl and events.jsonl. What cannot be read says
// nothing.
LossHistory read_losses(const std::filesystem::path& run, double guess);

}  // namespace strait::control

#pragma once

#include "framework/store/checkpoint.h"
#include "framework/store/sample.h"
#include "framework/trace/early_stop.h"

namespace strait::run {

// What the losses of a run show about its weights. Pure.
//
// The loss of a step belongs to the weights before it. A loss is sound if it is finite and has not
// diverged. For a step its gradient must be finite too, because it changed the weights. A loss has
// diverged if it is above that of a guess among all tokens after it was below. A step that is not
// finite changes no weight. So a sound loss proves the weights of every earlier checkpoint to be
// good.
class LossHistory {
 public:
  // `guess`: the loss of a guess, ln(vocabulary). 0: unknown, and no loss counts as diverged.
  explicit LossHistory(double guess = 0) : guess_(guess) {}

  struct Loss {
    store::Step step{};
    double value = 0;          // not finite if the loss was not
    std::int64_t targets = 0;  // the number of tokens of the mean
  };
  // The loss of the weights before this step, and whether they were updated.
  void trained(const Loss& loss, bool skipped);
  // The loss of the weights after this step. May come before trained() of the same step.
  void evaluated(const Loss& loss);
  // The run continues from the checkpoint of this step.
  void go_back(store::Step step);

  // Checkpoints of this and earlier steps are known to be good. nullopt: no loss was finite.
  std::optional<store::Step> good() const { return good_; }
  bool is_good(store::Step checkpoint) const { return good_ && checkpoint <= *good_; }
  // A loss of its weights, or of later ones, was seen.
  bool is_seen(store::Step checkpoint) const {
    return checkpoint < trained_ || is_evaluated(checkpoint);
  }
  // The latest loss belongs to its weights and was not finite.
  bool is_bad(store::Step checkpoint) const { return not_finite_ && !is_good(checkpoint); }

  // The `keep` best checkpoints are those of the steps with the lowest evaluation losses; of equal
  // ones the earliest.
  store::BestRule best(std::int64_t keep) const;
  // Of the weights after this step, where they were evaluated.
  std::optional<double> evaluation(store::Step step) const;
  // What the evaluations so far mean to this rule.
  trace::EarlyStop early_stop(const trace::EarlyStop::Rule& rule) const;
  // Why the run ends early by this rule, as a sentence. Empty: it does not.
  std::string end_reason(const trace::EarlyStop::Rule& rule) const;

  // Steps that changed no weight, up to the latest one. Starts again with go_back().
  int skipped_in_a_row() const { return skipped_; }
  // Why the latest loss is not sound, as a sentence. Empty: it is.
  std::string divergence() const;

 private:
  bool is_evaluated(store::Step step) const { return evaluated_ && step <= *evaluated_; }
  bool is_sound(const Loss& loss) const;
  void add(const Loss& loss, store::Step weights);
  void add_better(const Loss& loss);

  double guess_;
  store::Step trained_{};                 // the latest step
  std::optional<store::Step> evaluated_;  // the latest evaluation, or go_back() before it
  std::vector<Loss> evaluations_;         // by step
  std::optional<store::Step> good_;
  std::optional<Loss> first_better_;  // the first one below a guess
  std::optional<Loss> best_;          // the best of these
  std::optional<Loss> latest_;
  bool not_finite_ = false;  // the latest loss or its gradient was not finite
  int skipped_ = 0;
};

// The evaluations of a run by step, from events.jsonl, without those after the checkpoint that the
// run resumed from.
std::map<store::Step, LossHistory::Loss> evaluations_of(const std::filesystem::path& run);

// Reads the losses of a run from metrics.jsonl and events.jsonl. Unreadable lines are skipped.
LossHistory read_losses(const std::filesystem::path& run, double guess);

}  // namespace strait::run

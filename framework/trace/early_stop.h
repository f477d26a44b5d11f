#pragma once

#include <cmath>
#include <cstdint>
#include <optional>

namespace strait::trace {

// Early stopping: the evaluation loss has not become better for `no_better` evaluations in a row.
// A function of the losses alone, so every process that has seen the same ones decides the same.
// A loss that is not finite is not better.
class EarlyStop {
 public:
  struct Rule {
    std::int64_t no_better = 0;  // evaluations in a row; 0: the run never ends early
    double min_delta = 0;        // a loss is better if it is lower than the best by more than this
    bool operator==(const Rule&) const = default;
  };
  struct State {
    std::optional<double> best;     // what later losses are compared with
    std::int64_t since_better = 0;  // evaluations
  };

  EarlyStop() = default;  // never
  explicit EarlyStop(Rule rule) : rule_(rule) {}
  EarlyStop(Rule rule, State state) : rule_(rule), state_(state) {}  // goes on from `state`

  void evaluated(double loss) {
    const bool better = state_.best ? loss < *state_.best - rule_.min_delta : std::isfinite(loss);
    if (better) state_.best = loss;
    state_.since_better = better ? 0 : state_.since_better + 1;
  }
  bool is_due() const { return rule_.no_better > 0 && state_.since_better >= rule_.no_better; }
  const Rule& rule() const { return rule_; }
  const State& state() const { return state_; }

 private:
  Rule rule_;
  State state_;
};

}  // namespace strait::trace

#pragma once

#include <random>

#include "tests/framework/sync/direct_round.h"

namespace strait::sync {

// The problem on which every method has to get somewhere: each replica is drawn to a place of its
// own, all as strongly, so that together they are drawn to the mean of these places. Steps pass the
// hooks in the order of a trainer.
class Quadratic {
 public:
  struct Settings {
    double apart = 0.3;  // of the replicas' places
    double noise = 0;    // on each gradient
    float learning_rate = 0.1F;
    bool adam = false;  // otherwise plain gradient descent
  };
  Quadratic(DirectRound& stage, std::uint64_t seed, const Settings& settings);

  // One step of all replicas in `members`, ascending; by default all.
  void step(std::int64_t step);
  void step(std::int64_t step, const std::vector<std::uint32_t>& members);
  void look(std::int64_t steps);

  void set_learning_rate(float rate) { settings_.learning_rate = rate; }

  // From a model to the place that all are drawn to, as a share of that place's own size.
  double distance(const std::vector<float>& model) const;

 private:
  void make_gradient(std::size_t number, std::size_t present);
  void update(std::size_t number, store::Step step);

  DirectRound& stage_;
  Settings settings_;
  std::mt19937_64 random_;
  std::vector<std::vector<float>> places_;
};

}  // namespace strait::sync

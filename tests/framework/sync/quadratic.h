#pragma once

#include <random>

#include "tests/framework/sync/direct_round.h"

namespace strait::sync {

// A quadratic problem on which every method must converge: each replica has a target of its own, so
// the optimum of all is the mean of the targets. Steps pass the hooks in the order of a trainer.
class Quadratic {
 public:
  struct Settings {
    double apart = 0.3;  // of the replicas' targets
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

  // The distance of a model to the optimum, relative to the norm of the optimum.
  double distance(const std::vector<float>& model) const;

 private:
  void make_gradient(std::size_t number, std::size_t present);
  void update(std::size_t number, store::Step step);

  DirectRound& stage_;
  Settings settings_;
  std::mt19937_64 random_;
  std::vector<std::vector<float>> targets_;
};

}  // namespace strait::sync

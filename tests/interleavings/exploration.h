#pragma once

#include <unordered_map>

#include "tests/interleavings/simulation.h"

namespace strait::interleavings {

// Every order of the steps of a simulation, depth first. A branch is taken by running the
// simulation again from its start; one that comes to a state where another one has been is left.
class Exploration {
 public:
  // With a victim: for a kill before each of its operations, or before each `every`-th of the first
  // `last`, from that of `settings` on.
  explicit Exploration(Case settings, int every = 1, int last = 1 << 20);

  std::uint64_t kills() const { return kills_; }
  std::uint64_t states() const { return states_; }
  std::uint64_t executions() const { return executions_; }
  const std::set<std::string>& outcomes() const { return outcomes_; }
  // Of the first execution with a wrong end: what, and the way to it. Empty: none.
  const std::string& failure() const { return failure_; }

 private:
  // False: the victim ended before it was killed.
  bool explore(const Case& settings);
  void execute(const Case& settings, std::vector<Transition> path);
  void fail(const Case& settings, const std::string& what, const std::vector<Transition>& path);

  std::uint64_t kills_ = 0;
  std::uint64_t states_ = 0;
  std::uint64_t executions_ = 0;
  bool killed_ = false;
  std::set<std::string> outcomes_;
  std::string failure_;
  // Of one kill: places where executions that are still to come leave the one before.
  std::vector<std::vector<Transition>> paths_;
  // Each state, and a hash of its choices: states that are taken for one must have the same.
  std::unordered_map<std::uint64_t, std::uint64_t> seen_;
};

}  // namespace strait::interleavings

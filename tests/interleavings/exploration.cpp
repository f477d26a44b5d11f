#include "tests/interleavings/exploration.h"

#include <xxhash.h>

namespace strait::interleavings {
namespace {

std::string text_of(const std::vector<Transition>& transitions) {
  std::string text;
  for (const Transition& one : transitions) text += " " + one.text();
  return text;
}

}  // namespace

Exploration::Exploration(Case settings, int every, int last) {
  for (; failure_.empty() && settings.operations < last; settings.operations += every) {
    if (!explore(settings)) return;
    ++kills_;
    if (!settings.victim) return;
  }
}

bool Exploration::explore(const Case& settings) {
  seen_.clear();
  paths_ = {{}};
  killed_ = !settings.victim;
  while (!paths_.empty() && failure_.empty()) {
    std::vector<Transition> path = std::move(paths_.back());
    paths_.pop_back();
    execute(settings, std::move(path));
    if (!killed_) return false;
  }
  return true;
}

void Exploration::execute(const Case& settings, std::vector<Transition> path) {
  Simulation simulation(settings);
  killed_ = killed_ || simulation.victim_was_killed();
  if (!killed_) return;
  ++executions_;
  for (const Transition& one : path) simulation.perform(one);
  while (true) {
    const std::vector<Transition> choices = simulation.choices();
    if (!path.empty()) {
      const std::string text = text_of(choices);
      const std::uint64_t offered = XXH3_64bits(text.data(), text.size());
      const auto [known, is_new] = seen_.emplace(simulation.state(), offered);
      if (!is_new) {
        if (known->second != offered)
          fail(settings, "states taken for one differ in " + text, path);
        return;
      }
      ++states_;
    }
    if (choices.empty()) break;
    for (std::size_t other = 1; other < choices.size(); ++other) {
      paths_.push_back(path);
      paths_.back().push_back(choices[other]);
    }
    path.push_back(choices.front());
    simulation.perform(choices.front());
  }
  outcomes_.insert(simulation.outcome());
  const std::string wrong = simulation.problem();
  if (!wrong.empty()) fail(settings, wrong, path);
}

void Exploration::fail(const Case& settings, const std::string& what,
                       const std::vector<Transition>& path) {
  failure_ =
      fmt::format("killed after {} operations: {};{}", settings.operations, what, text_of(path));
}

}  // namespace strait::interleavings

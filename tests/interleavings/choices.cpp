
#include "tests/interleavings/simulation.h"

// Which steps of a simulation have to be tried, and what is wrong at its end.
namespace strait::interleavings {

std::vector<Transition> Simulation::coordinators() const {
  std::vector<Transition> found;
  for (std::size_t i = 0; i < reports_.size(); ++i) {
    if (reports_[i].empty()) continue;
    found.push_back({Transition::Kind::coordinator, static_cast<int>(i), 0, Outcome::done});
  }
  return found;
}

std::vector<Transition> Simulation::steps_of(int index) {
  std::vector<Transition> found;
  for (const Fiber* fiber : fibers_.of(index)) {
    for (const Transition& one : operations_of(*fiber)) found.push_back(one);
  }
  if (!process(index).control.empty()) {
    found.push_back({Transition::Kind::control, index, 0, Outcome::done});
  }
  return found;
}

std::vector<Transition> Simulation::choices() {
  if (case_.reduced) return reduced_choices();
  std::vector<Transition> found = coordinators();
  for (std::size_t i = 0; i < processes_.size(); ++i) {
    for (const Transition& one : steps_of(static_cast<int>(i))) found.push_back(one);
  }
  return found;
}

// Of members' processes that have ended: the last report of each evicts it.
std::vector<Transition> Simulation::reports_of_ended() const {
  std::vector<Transition> found = coordinators();
  std::erase_if(found, [&](const Transition& one) {
    const Process& from = process(one.process);
    return from.error.empty() || !membership_.has(from.name.replica);
  });
  return found;
}

// Reports commute at the coordinator but for an eviction and the shards of a checkpoint, which
// count or are withdrawn. No process can save without the one that has ended, unless that was at
// it. Then what is left of its reports comes at once or behind one more report of shards: where it
// comes between the steps of processes makes no difference, as they learn of it by messages.
std::vector<Transition> Simulation::reduced_choices() {
  const std::vector<Transition> reports = coordinators();
  const std::vector<Transition> ends = reports_of_ended();
  const bool in_save = std::ranges::any_of(
      processes_, [](const auto& one) { return one->saving && !one->error.empty(); });
  if (!reports.empty() && (ends.empty() || !in_save)) return {reports.front()};
  std::vector<Transition> found;
  if (ends.size() != postponed_) found = ends;
  const auto others = std::ranges::find_if(reports, [&](const Transition& one) {
    return std::ranges::none_of(ends,
                                [&](const Transition& end) { return end.process == one.process; });
  });
  if (others != reports.end()) {
    found.push_back(*others);
    return found;
  }
  const std::vector<Transition> steps = reduced_steps();
  if (steps.empty()) return ends;
  found.insert(found.end(), steps.begin(), steps.end());
  return found;
}

// A thread's operations on links commute with those of all other threads: it waits for one link at
// a time, and what it gets from it does not depend on when. What does not commute are messages of
// the coordinator to a process with the operations of that process.
std::vector<Transition> Simulation::reduced_steps() {
  std::vector<Transition> undecided;
  for (std::size_t i = 0; i < processes_.size(); ++i) {
    const int index = static_cast<int>(i);
    const std::vector<Transition> steps = steps_of(index);
    if (steps.empty()) continue;
    if (process(index).control.empty()) {
      std::vector<Transition> of_one_thread;
      for (const Transition& one : steps) {
        if (one.fiber == steps.front().fiber) of_one_thread.push_back(one);
      }
      return of_one_thread;
    }
    undecided.insert(undecided.end(), steps.begin(), steps.end());
  }
  for (std::size_t i = 0; i < processes_.size(); ++i) {
    const int index = static_cast<int>(i);
    if (process(index).control.empty()) continue;
    // Nothing that others do makes another of its steps possible.
    const auto& fibers = fibers_.of(index);
    const bool blocked = std::ranges::any_of(fibers, [&](const Fiber* fiber) {
      return fiber->state == Fiber::State::at_operation && operations_of(*fiber).empty();
    });
    if (!blocked) return steps_of(index);
  }
  return undecided;
}

// A replica that joins depends on the one that sends the state, to each of its stages.
bool Simulation::may_fail(std::uint32_t replica) const {
  if (case_.victim && case_.victim->replica == replica) return true;
  return std::ranges::any_of(processes_, [&](const auto& one) {
    return one->name.replica == replica && one->error == kSenderLost;
  });
}

std::string Simulation::problem() const {
  if (!found_.empty()) return found_;
  const Process* first = nullptr;
  for (const auto& one : processes_) {
    const std::string name = one->name.describe();
    if (!one->error.empty() && !may_fail(one->name.replica)) return name + " failed: " + one->error;
    if (one->doomed || !one->started) continue;
    if (!one->finished) return name + " waits for ever";
    if (first != nullptr && one->epoch != first->epoch) {
      return fmt::format("{} ends in epoch {} and {} in epoch {}", name, one->epoch,
                         first->name.describe(), first->epoch);
    }
    if (first == nullptr) first = one.get();
    const std::int64_t begin = case_.arrives == one->name.replica ? case_.checkpoint : 0;
    for (std::int64_t step = begin; step < case_.steps; ++step) {
      const auto at = static_cast<std::size_t>(step - begin);
      if (at >= one->trained.size() || one->trained[at].step != step) {
        return fmt::format("{} has not trained step {} once", name, step);
      }
      const std::string wrong = compare(*one, one->trained[at]);
      if (!wrong.empty()) return wrong;
    }
  }
  return first == nullptr ? "no process is left" : "";
}

// With the same step of the other processes of its stage.
std::string Simulation::compare(const Process& one, const TrainedStep& trained) const {
  constexpr int kDigitBits = 3;
  const auto count = [&](std::uint32_t replica) {
    return trained.contributions >> (kDigitBits * replica) & 7U;
  };
  if (case_.method == "allreduce" && count(one.name.replica) != 1) {
    return fmt::format("{} has its own contribution to step {} {} times", one.name.describe(),
                       trained.step, count(one.name.replica));
  }
  for (const auto& other : processes_) {
    if (other->doomed || !other->started || other->name.stage != one.name.stage) continue;
    for (const TrainedStep& theirs : other->trained) {
      if (theirs.step != trained.step || theirs == trained) continue;
      return fmt::format("fork: {} and {} differ in step {} (contributions {:o} and {:o})",
                         one.name.describe(), other->name.describe(), trained.step,
                         trained.contributions, theirs.contributions);
    }
  }
  return {};
}

std::string Simulation::outcome() const {
  std::string text;
  for (const auto& one : processes_) {
    if (one->doomed || !one->started) continue;
    text += fmt::format("{}:", one->name.text());
    for (const TrainedStep& step : one->trained) {
      text += fmt::format(" {}/{:o}/{:x}", step.step, step.contributions, step.model);
    }
    text += fmt::format(" epoch {}; ", one->epoch);
  }
  for (const auto& [step, epoch] : committed_) {
    text += fmt::format("checkpoint {} of epoch {}; ", number(step), epoch);
  }
  return text;
}

}  // namespace strait::interleavings

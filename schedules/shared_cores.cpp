#include "schedules/shared_cores.h"

#include <cmath>
#include <utility>

namespace strait::schedules {

SharedCores::SharedCores(const std::vector<double>& cores) : machines_(cores.size()) {
  for (std::size_t i = 0; i < cores.size(); ++i) machines_[i].cores = cores[i];
}

void SharedCores::start(std::size_t machine, double seconds, double threads, std::size_t task) {
  Machine& at = machines_[machine];
  if (std::isinf(at.cores)) return wait(now_ + seconds, task);  // nothing slows it down
  at.work = at.tasks.empty() ? 0 : at.work + (now_ - at.changed) * at.rate();
  at.threads += threads;
  at.tasks.push({at.work + seconds, started_++, threads, task});
  find_next_end(machine);
}

void SharedCores::wait(double end, std::size_t task) { ends_.push({end, started_++, 0, task}); }

// All tasks of a machine have the same rate, so the one with least work left ends first.
void SharedCores::find_next_end(std::size_t machine) {
  Machine& at = machines_[machine];
  at.changed = now_;
  const double end = at.tasks.empty() ? kNever : now_ + (at.tasks.top().end - at.work) / at.rate();
  if (std::exchange(at.next_end, end) == end || end == kNever) return;
  ends_.push({end, started_++, 1, machine});
}

std::optional<std::size_t> SharedCores::next() {
  while (!ends_.empty()) {
    const Task end = ends_.top();
    ends_.pop();
    const bool waited = end.threads == 0;
    if (!waited && machines_[end.task].next_end != end.end) continue;  // it changed
    now_ = end.end;
    if (waited) return end.task;
    Machine& at = machines_[end.task];
    const Task ended = at.tasks.top();
    at.tasks.pop();
    at.work = ended.end;
    at.threads = at.tasks.empty() ? 0 : at.threads - ended.threads;
    at.next_end = kNever;
    find_next_end(end.task);
    return ended.task;
  }
  return std::nullopt;
}

}  // namespace strait::schedules

#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <queue>
#include <vector>

namespace strait::schedules {

// Tasks on the cores of machines, and on GPUs, by the time at which they end. All threads that are
// busy on a machine have equal parts of its cores, and none more than one core.
class SharedCores {
 public:
  // Cores of each machine; infinity: there is one for every thread.
  explicit SharedCores(const std::vector<double>& cores);

  double now() const { return now_; }
  // A task begins now that takes `seconds` if each of its threads has a core.
  void start(std::size_t machine, double seconds, double threads, std::size_t task);
  // A task that takes no cores ends at this time, which is not before now.
  void wait(double end, std::size_t task);
  // Goes on to the time at which the next task ends, and returns it. Nullopt: none is left.
  std::optional<std::size_t> next();

 private:
  struct Task {
    double end;  // a time; on a machine in `work`
    std::uint64_t order;
    double threads;
    std::size_t task;
    bool operator>(const Task& other) const {
      return end != other.end ? end > other.end : order > other.order;
    }
  };
  using Tasks = std::priority_queue<Task, std::vector<Task>, std::greater<>>;
  struct Machine {
    double cores = 0;
    double threads = 0;  // of all tasks
    double changed = 0;  // when `work` was counted last
    double work = 0;     // seconds that each busy thread has had a core since none was busy
    double next_end = kNever;
    Tasks tasks;

    double rate() const { return threads <= cores ? 1 : cores / threads; }
  };
  static constexpr double kNever = std::numeric_limits<double>::infinity();
  void find_next_end(std::size_t machine);

  std::vector<Machine> machines_;
  Tasks ends_;  // of tasks without cores; with one thread, of the next task of this machine
  double now_ = 0;
  std::uint64_t started_ = 0;
};

}  // namespace strait::schedules

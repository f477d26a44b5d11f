// What the coordinator costs per step when a thousand stages report to it: real messages over
// memory links, one process. Prints a table of CPU seconds per step by number of stages.
#include <time.h>

#include <atomic>
#include <cstdlib>
#include <thread>

#include "launcher/run/control_message.h"
#include "launcher/run/coordinator.h"
#include "tests/memory_links.h"

namespace strait::run {
namespace {

double cpu_seconds(clockid_t clock) {
  timespec time{};
  ::clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

// What a stage says in a step that it ends.
std::vector<StageMessage> words_of_a_step(net::ProcessName name, std::int64_t step) {
  Progress progress;
  progress.step = store::Step{step};
  progress.phase = "forward";
  progress.finished_actions = static_cast<std::uint64_t>(step) * 100;
  progress.links = {{"boundary up", "stage", 1'000'000, 1'000'000},
                    {"boundary down", "stage", 1'000'000, 1'000'000}};
  StepDone done;
  done.step = store::Step{step};
  done.seconds = 1;
  done.busy_seconds = 0.9;
  done.boundaries.resize(1);
  if (name.stage == 0) done.loss = 1.0;
  return {progress, done};
}

class CoordinatorLoad {
 public:
  explicit CoordinatorLoad(std::uint32_t stages) {
    for (std::uint32_t i = 0; i < stages; ++i) {
      const net::ProcessName name{i, 0};
      auto [ours, theirs] = memory_links(net::ProcessName::coordinator(), name, "control");
      names_.push_back(name);
      workers_.push_back({name, std::move(ours), nullptr, ""});
      stages_.push_back(std::move(theirs));
    }
  }

  // CPU seconds of everything but the stages' own part, per step.
  double seconds_per_step(std::int64_t steps) {
    CoordinatorOptions options;
    options.to = store::Step{steps};
    options.build = "bench";
    Coordinator coordinator(std::move(workers_), std::move(options), {});
    double spoken = 0;
    std::thread speaker([&] { spoken = speak(steps); });
    const double before = cpu_seconds(CLOCK_PROCESS_CPUTIME_ID);
    const std::atomic<int> stops = 0;
    const Outcome outcome = coordinator.run(stops);
    const double all = cpu_seconds(CLOCK_PROCESS_CPUTIME_ID) - before;
    speaker.join();
    if (outcome.code != base::ExitCode::done) {
      fmt::print(stderr, "the run failed: {}\n", outcome.cause);
      std::exit(1);
    }
    return (all - spoken) / static_cast<double>(steps);
  }

 private:
  double speak(std::int64_t steps) {
    for (std::size_t i = 0; i < stages_.size(); ++i) {
      stages_[i]->send(format(StageMessage(Hello{names_[i], 1, "host", "bench"})));
      stages_[i]->send(format(StageMessage(Ready{{{"link " + names_[i].text(), "tcp://a:1"}}})));
    }
    for (auto& stage : stages_) stage->receive();  // the peers
    for (std::int64_t step = 1; step <= steps; ++step) {
      for (std::size_t i = 0; i < stages_.size(); ++i) {
        for (const StageMessage& message : words_of_a_step(names_[i], step)) {
          stages_[i]->send(format(message));
        }
      }
    }
    for (auto& stage : stages_) stage->send(format(StageMessage(Ended{})));
    for (auto& stage : stages_) stage.reset();
    return cpu_seconds(CLOCK_THREAD_CPUTIME_ID);
  }

  std::vector<net::ProcessName> names_;
  std::vector<WorkerHandle> workers_;
  std::vector<std::unique_ptr<net::Link>> stages_;
};

}  // namespace
}  // namespace strait::run

int main() {
  fmt::print("stages  CPU ms of the coordinator per step  microseconds per stage\n");
  for (const std::uint32_t stages : {10U, 100U, 1000U}) {
    const double seconds = strait::run::CoordinatorLoad(stages).seconds_per_step(20);
    fmt::print("{:6}  {:35.2f}  {:22.1f}\n", stages, seconds * 1e3, seconds * 1e6 / stages);
  }
  return 0;
}

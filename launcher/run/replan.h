#pragma once

#include <future>

#include "launcher/recipe/links.h"
#include "launcher/recipe/run_files.h"
#include "launcher/run/model_questions.h"
#include "launcher/run/run_observer.h"

namespace strait::run {

// How fast hosts and links of a run are, by its latest steps. Pure: no clock, no file.
class RunSpeeds {
 public:
  // `expected`: seconds that each process computes in a step by the plan.
  RunSpeeds(const plan::Plan& plan, std::map<net::ProcessName, double> expected)
      : plan_(plan), expected_(std::move(expected)) {}

  void add(const StepLine& line);
  bool known() const { return seconds_.size() == kWindow; }  // enough steps were added
  double step_seconds() const;                               // median
  // The speeds of the plan, with measured ones for the hosts and paths that the run uses.
  recipe::LinkTable table() const;

  static constexpr std::size_t kWindow = 16;

 private:
  using Path = std::pair<std::size_t, std::size_t>;  // host indices

  const plan::Plan& plan_;
  std::map<net::ProcessName, double> expected_;
  std::deque<double> seconds_;
  std::map<net::ProcessName, std::deque<double>> busy_;
  std::map<Path, std::deque<double>> rates_;
};

// Forecasts of the rest of a run.
struct ReplanCosts {
  double step_seconds = 0;        // as it runs now
  double other_step_seconds = 0;  // with the other layout
  std::int64_t steps = 0;         // that are left
  double restart_seconds = 0;     // to save, to start again and to send what moves
};

// Whether to go on with the other layout: it is clearly faster, and saves twice what the change
// costs, because forecasts err.
bool replan_pays(const ReplanCosts& costs);

// `pipeline.replan`: after a checkpoint it plans the run anew by its measured speeds, on a thread
// of its own, and asks for the end of the launch if another layout pays. The number of replicas,
// the rows of a micro-batch, the schedule and the codec stay.
class Replan : public RunObserver {
 public:
  // One for each launch, which begins now. `model` outlives it.
  explicit Replan(const ModelQuestions& model) : model_(model) {}

  // The run, with what its hosts have reported. Called before training.
  void begin(const plan::RunFile& run);
  void training(store::Step from, store::Step to) override;
  void step(const StepLine& line) override;
  void checkpointed(store::Step step) override;

  // Why the launch is to end: a sentence, once; empty: it goes on. Called every second.
  std::string take_request();
  // The run with the layout that was asked for.
  const std::optional<plan::RunFile>& next() const { return next_; }

 private:
  struct Answer {
    std::optional<plan::RunFile> run;  // absent: the layout stays
    std::string sentence;
  };
  Answer better_run(const recipe::LinkTable& speeds, ReplanCosts costs) const;

  const ModelQuestions& model_;
  const std::chrono::steady_clock::time_point started_ = std::chrono::steady_clock::now();
  std::optional<plan::RunFile> run_;
  std::optional<RunSpeeds> speeds_;
  double start_seconds_ = 0;  // from the start of the launch to its first step
  std::future<Answer> answer_;
  std::optional<plan::RunFile> next_;
};

}  // namespace strait::run

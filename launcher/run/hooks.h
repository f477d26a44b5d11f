#pragma once

#include "launcher/base/backend.h"
#include "launcher/recipe/recipe.h"
#include "launcher/run/run_directory.h"
#include "launcher/run/run_observer.h"

namespace strait::run {

// A call of a command of [on]: what its variables say.
struct HookCall {
  std::string name;  // "checkpoint"
  std::string command;
  store::Step step{};
  base::ExitCode code = base::ExitCode::done;
  std::string cause;
};

// The words that run it: `sh -c`, with its variables and no input. It ends when the stream that is
// its stdin does. Pure.
std::vector<std::string> hook_words(const HookCall& call, const std::string& run,
                                    const std::filesystem::path& directory);

// Runs the commands of a recipe's [on] on this machine, in the launcher's environment and folder.
// Their output is appended to logs/hooks.log. A command that fails is an event, and changes nothing
// of the run. One at a time: of the checkpoints that come while on.checkpoint runs, only the newest
// has its turn. Nothing waits before finish(). It ends with the launcher, however that ends.
// Observes all launches of a run, on their thread.
class Hooks : public RunObserver {
 public:
  // `directory` and `observer` outlive this object; `observer` shows the events.
  Hooks(const RunDirectory& directory, const recipe::Recipe& recipe, RunObserver& observer);

  void checkpointed(store::Step step) override;
  void reports(const std::vector<ProcessReport>& processes) override;

  // The run has ended for good. Waits for on.checkpoint, then runs on.failure (unless the code is
  // done or interrupted) and on.end. A further stop request ends a command, and so does an hour.
  void finish(const Outcome& outcome, const std::atomic<int>& stops);

 private:
  void start(HookCall call);
  void poll();  // whether the command has ended; starts the next one
  void wait(const std::atomic<int>& stops);
  void fail(const std::string& how);

  const RunDirectory& directory_;
  const std::string run_;
  const recipe::Recipe::Hooks on_;
  RunObserver& observer_;
  HookCall call_;                           // the latest
  std::unique_ptr<base::Process> process_;  // null: none runs
  std::optional<store::Step> next_;         // the newest checkpoint without its turn
};

}  // namespace strait::run

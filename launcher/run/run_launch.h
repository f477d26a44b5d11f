#pragma once

#include "launcher/hosts/rendezvous.h"
#include "launcher/recipe/resume.h"
#include "launcher/recipe/run_files.h"
#include "launcher/run/model_questions.h"
#include "launcher/run/outcome.h"
#include "launcher/run/run_directory.h"
#include "launcher/run/run_observer.h"
#include "launcher/run/run_transfer.h"

namespace strait::run {

struct LaunchOptions {
  std::string resume;                       // path of a checkpoint; empty: a new run
  store::Step from{};                       // number of steps in that checkpoint
  plan::CacheResume caches;                 // what to do with its activation caches
  plan::SyncResume sync;                    // what to do with the state of its sync method
  ModelQuestions model;                     // outlives the launch
  std::optional<std::string> recipe;        // new text of recipe.toml; absent: it stays
  std::set<std::uint32_t> without;          // replicas that the run starts without
  std::vector<RunObserver*> observers;      // outlive the launch
  hosts::Rendezvous* rendezvous = nullptr;  // where hosts join by themselves; null: none does
  bool by_engine = false;  // an engine has started this process, and may start it again
  // Called with the run as it starts, with what its hosts have reported. May be absent.
  std::function<void(const plan::RunFile&)> starting;
  std::function<std::string()> end_requests;  // see CoordinatorOptions
  InferenceClient* inference = nullptr;       // asks the model of `resume`; null: the run trains
};

// Starts every process of a run under a new generation, coordinates them until the last has exited,
// and completes the run's files. Generates all keys; they exist in memory and on the stages' stdin
// only. Returns how the run ended. UserError: it could not start.
//
// Until every process is up and has loaded, nothing changes that a later resume depends on: plan,
// recipe, metrics and checkpoints stay as they were, here and on the hosts.
Outcome launch_run(RunDirectory& directory, const plan::RunFile& run, const LaunchOptions& options);

// Starts the stages of a run on its hosts with the weights of the checkpoint `options.resume`, to
// answer `options.inference`, and ends them once it has finished. `run` is of
// planner::inference_plan. Of the run's files only the generation and the logs change. Returns how
// it ended. UserError: it could not start.
Outcome launch_inference(RunDirectory& directory, const plan::RunFile& run,
                         const LaunchOptions& options);

// Launches the run, and again as long as RestartPolicy says so: from its newest complete
// checkpoint, on the hosts that answer, with spare ones or fewer stages for the others. `observer`
// observes every launch. `chosen`: the user's checkpoint of `options` (--from); until a launch has
// trained, and so given newer ones up, a restart takes it again.
//
// Returns how the run ended: of failures that came back without a new checkpoint in between, with
// the first; `trained` if any launch has. UserError: the first launch could not start, or the user
// stopped it while it did. The recipe's commands (hooks.h) have been run by then.
Outcome run_supervised(RunDirectory& directory, const plan::RunFile& run,
                       const LaunchOptions& options, std::optional<store::Step> chosen,
                       RunObserver& observer);

// Downloads the shards of the newest checkpoint, or of the checkpoint of step `from`, that a former
// launch left on hosts because it ended before they were downloaded. Removes nothing. `report` is
// called if it takes long. Returns a message for the user; empty: nothing was missing. UserError:
// the checkpoint cannot be used. Code `interrupted`: the user ended the wait. `corrupt`: some
// shards are on no host that can be called. Any other code: another attempt may succeed.
//
// `lost`: hosts that do not answer. They are not called, and shards that only they have are
// missing.
std::string recover_checkpoint(RunDirectory& directory, const plan::RunFile& run,
                               std::optional<store::Step> from, const ModelQuestions& model,
                               hosts::Rendezvous* rendezvous, const RunTransfer::Report& report,
                               const std::set<std::size_t>& lost);

}  // namespace strait::run

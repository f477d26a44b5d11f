#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "launcher/control/outcome.h"
#include "launcher/control/run_directory.h"
#include "launcher/control/run_observer.h"
#include "launcher/launch/model_questions.h"
#include "launcher/plan/resume.h"
#include "launcher/plan/run_files.h"

namespace strait::launch {

struct LaunchOptions {
  std::string resume;                            // the checkpoint to go on from; empty: a new run
  store::Step from{};                            // the steps that it holds
  plan::CacheResume caches;                      // what it remembers of samples
  plan::SyncResume sync;                         // and what its replicas do with their own state
  ModelQuestions model;                          // has to outlive the launch
  std::set<std::uint32_t> without;               // replicas that it begins without
  std::vector<control::RunObserver*> observers;  // they outlive the launch
};

// Starts every process of a run under a new generation, coordinates them until the last has exited,
// and completes the run's files. Generates all keys; they exist in memory and on the stages' stdin
// only. Returns how the run ended. UserError: it could not start.
control::Outcome launch_run(control::RunDirectory& directory, const plan::RunFile& run,
                            const LaunchOptions& options);

}  // namespace strait::launch

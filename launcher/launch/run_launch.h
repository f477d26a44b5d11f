#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "launcher/control/outcome.h"
#include "launcher/launch/model_questions.h"
#include "launcher/control/run_observer.h"
#include "launcher/plan/resume.h"
#include "launcher/control/run_directory.h"
#include "launcher/plan/run_files.h"

namespace strait::launch {

struct LaunchOptions {
  std::string resume;                   // the checkpoint to go on from; empty: a new run
  store::Step from{};                   // the steps that it holds
  plan::CacheResume caches;                   // what it remembers of samples
  plan::SyncResume sync;                      // and what its replicas do with their own state
  ModelQuestions model;                 // has to outlive the launch
  std::set<std::uint32_t> without;      // replicas that it begins without
  std::vector<control::RunObserver*> observers;  // they outlive the launch
};

// Starts every process of a run under a new generation, coordinates them until the last has left,
// and leaves the run's files complete. Makes all keys; they exist in memory and on the stages'
// stdin only. Returns how it ended; throws UserError for what cannot even be started.
control::Outcome launch_run(control::RunDirectory& directory, const plan::RunFile& run, const LaunchOptions& options);

}  // namespace strait::launch

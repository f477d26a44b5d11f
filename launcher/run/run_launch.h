#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "launcher/control/outcome.h"
#include "launcher/control/run_observer.h"
#include "launcher/run/cache_resume.h"
#include "launcher/run/run_directory.h"
#include "launcher/run/run_files.h"
#include "launcher/run/sync_resume.h"

namespace strait::launcher {

struct LaunchOptions {
  std::string resume;                   // the checkpoint to go on from; empty: a new run
  store::Step from{};                   // the steps that it holds
  CacheResume caches;                   // what it remembers of samples
  SyncResume sync;                      // and what its replicas do with their own state
  std::set<std::uint32_t> without;      // replicas that it begins without
  std::vector<RunObserver*> observers;  // they outlive the launch
};

// Starts every process of a run under a new generation, coordinates them until the last has left,
// and leaves the run's files complete. Makes all keys; they exist in memory and on the stages'
// stdin only. Returns how it ended; throws UserError for what cannot even be started.
Outcome launch_run(RunDirectory& directory, const RunFile& run, const LaunchOptions& options);

}  // namespace strait::launcher

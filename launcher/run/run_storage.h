#pragma once

#include <atomic>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "framework/store/checkpoint.h"
#include "framework/store/manifest.h"
#include "launcher/plan/run_files.h"
#include "launcher/run/memory_checkpoints.h"
#include "launcher/run/run_hosts.h"
#include "launcher/run/run_transfer.h"

namespace strait::run {

// Where the files of a launch are: all its processes see those of this machine, or each host has
// its own, and the launcher sends and downloads. One thread; after start_downloads() commit(),
// known_good(), prune() and take_warnings() may be called while another thread is in
// RunHosts::rejoin_hosts().
class RunStorage {
 public:
  using Report = RunTransfer::Report;

  virtual ~RunStorage() = default;

  // Sends what the processes read, with this part of the checkpoint `resume` unless that is empty.
  // UserError, StoreError: a host cannot have it, or a stop was requested.
  virtual void send_inputs(const std::string& resume, store::Part part, const Report& report) = 0;
  // Downloads each checkpoint from its commit on, as checkpoint.home says.
  virtual void start_downloads() = 0;
  // All files of the checkpoint are written.
  virtual void commit(const store::Manifest& manifest) = 0;
  // Checkpoints of this step and of earlier ones are known to be good: no prune() and no download
  // from now on removes the newest of them.
  virtual void known_good(store::Step step) = 0;
  virtual store::Pruned prune(store::PruneTime time) = 0;
  // Sets aside what hosts hold of later steps.
  virtual void rewind(store::Step step) = 0;
  // This outlives the result. StoreError: this machine has no memory directory.
  virtual std::unique_ptr<MemoryCheckpoints> memory() = 0;
  // What went wrong with downloads since the last call.
  virtual std::vector<std::string> take_warnings() = 0;
  // The processes have ended. Waits for what is being downloaded; a stop request ends the wait.
  virtual void finish(const Report& report) = 0;
};

// All arguments outlive it. `stops` as in RunHosts.
std::unique_ptr<RunStorage> storage_of(RunHosts& hosts, const plan::RunFile& run,
                                       const std::filesystem::path& directory,
                                       const std::atomic<int>& stops);

}  // namespace strait::run

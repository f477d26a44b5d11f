#pragma once

#include "framework/store/checkpoint.h"
#include "framework/store/manifest.h"
#include "launcher/recipe/run_files.h"
#include "launcher/run/checkpoint_downloader.h"
#include "launcher/run/loss_history.h"
#include "launcher/run/memory_checkpoints.h"
#include "launcher/run/run_directory.h"
#include "launcher/run/run_hosts.h"
#include "launcher/run/run_transfer.h"

namespace strait::run {

// What of a run's checkpoints is to be on this machine when it has ended; the rest may stay on the
// run's hosts.
store::Part part_here(const plan::Plan& plan);

// CheckpointDownloader::finish(), which reports progress if it takes long.
CheckpointDownloader::Finished finish_downloads(CheckpointDownloader& downloader,
                                                const std::function<bool()>& give_up,
                                                const std::function<void(const Event&)>& report);

// Where the files of a launch are: all its processes see those of this machine, or each host has
// its own, and the launcher sends and downloads. Its table knows where every checkpoint is. One
// thread; after start_checkpoints(), commit(), judge(), prune() and take_warnings() may be called
// while another thread is in RunHosts::rejoin_hosts().
class RunStorage {
 public:
  using Report = RunTransfer::Report;
  using ManifestOf =
      std::function<store::Manifest(store::Step, const std::vector<store::ShardFile>&)>;

  // All arguments outlive it. `stops` as in RunHosts.
  RunStorage(RunHosts& hosts, const plan::RunFile& run, const RunDirectory& directory,
             const std::atomic<int>& stops);

  // Sends what the processes read, with this part of the checkpoint `resume` unless that is empty.
  // UserError, StoreError: a host cannot have it, or a stop was requested.
  void send_inputs(const std::string& resume, store::Part part, const Report& report);

  // From now on checkpoints are committed, and downloaded as checkpoint.home says.
  void start_checkpoints(ManifestOf manifest);
  // Holds the checkpoints in memory that the recipe asks for. Null: it asks for none, or this
  // machine has no room for any. This object owns the result.
  MemoryHolder* hold_in_memory(const Report& report);
  // All processes have written these files.
  void commit(store::Step step, const std::vector<store::ShardFile>& files);
  // After every loss. Nothing that is pruned from now on is the newest checkpoint known to be good,
  // or one of those that checkpoint.keep_best keeps.
  void judge(const LossHistory& losses);
  store::Pruned prune(store::PruneTime time) { return table_->prune(time); }
  // Sets aside what hosts hold of later steps.
  void rewind(store::Step step);
  // What went wrong with downloads since the last call.
  std::vector<std::string> take_warnings() {
    return downloader_ ? downloader_->take_warnings() : std::vector<std::string>();
  }

  // The processes have ended. After a failure: writes the newest checkpoint in memory to this
  // machine's disk. Returns its step; nullopt: none is newer than the checkpoints on disk.
  std::optional<store::Step> save_from_memory(const Report& report);
  // The processes have ended. Waits for what is being downloaded; a stop request ends the wait.
  void finish(const Report& report);
  // RunTransfer::download_traces, before finish(). On one machine nothing is to be downloaded.
  std::vector<std::string> download_traces(const plan::Plan& plan,
                                           const std::function<bool()>& give_up);

 private:
  // True once the user has requested another stop.
  std::function<bool()> one_more_stop() const;

  RunHosts& hosts_;
  RunTransfer* const transfer_;  // null: all processes see the files of this machine
  const plan::RunFile& run_;
  const RunDirectory& directory_;
  const std::atomic<int>& stops_;
  ManifestOf manifest_;
  LossHistory losses_;
  std::shared_ptr<CheckpointTable> table_;
  std::unique_ptr<CheckpointDownloader> downloader_;  // over hosts
  std::unique_ptr<MemoryCheckpoints> memory_;
};

}  // namespace strait::run

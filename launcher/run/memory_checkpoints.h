#pragma once

#include <atomic>
#include <future>
#include <thread>

#include "framework/mutex.h"
#include "framework/store/manifest.h"
#include "framework/store/memory_directory.h"
#include "launcher/plan/run_files.h"
#include "launcher/run/coordinator_options.h"
#include "launcher/run/loss_history.h"
#include "launcher/run/run_directory.h"
#include "launcher/transfer/checkpoint_downloader.h"

namespace strait::run {

// Which checkpoints in memory (checkpoint.memory_every) the run has, and where: in the memory
// directory of each process's host, and over hosts a copy in that of its neighbour, which fetches
// it with lower priority than activations. So any one host may be lost. They stay and go by the
// rule of those on disk: the newest, and the newest that is known to be good. A checkpoint on two
// hosts is never replaced by one without copies. Memory has room for two: while one is copied, one
// other stays.
//
// They outlive the processes that made them, not the launch. Once these processes have ended, one
// of them becomes a checkpoint on this machine's disk.
class MemoryCheckpoints : public MemoryHolder {
 public:
  struct OverHosts {
    transfer::TransferAgent& agent;
    std::vector<transfer::CheckpointDownloader::Host> hosts;
    std::function<bool(std::size_t)> lost;  // a host's agent is disconnected; any thread
  };
  // What `over` names outlives this object. Without: the processes are on this machine, and its
  // memory directory is that of this object. StoreError: it cannot be made.
  explicit MemoryCheckpoints(const plan::RunFile& run, std::optional<OverHosts> over = {});
  ~MemoryCheckpoints() override;  // gives up what is being copied

  void hold(store::Step step, std::vector<store::ShardFile> files) override STRAIT_EXCLUDES(mutex_);
  std::vector<MemoryDecision> take_decisions() override STRAIT_EXCLUDES(mutex_);
  // After every loss, on the coordinator's thread.
  void judge(const LossHistory& losses) STRAIT_EXCLUDES(mutex_);

  struct Held {
    store::Step step{};
    std::vector<store::ShardFile> files;
    bool on_two = false;  // hosts, each of them
  };
  // Newest first. Ends what is being copied; no hold() follows.
  std::vector<Held> end_and_list() STRAIT_EXCLUDES(mutex_);

  // Writes those files of one that are not there to this folder. `give_up` is called while it
  // waits, and ends that. UserError, StoreError: why it is not available.
  void save(const Held& one, const std::filesystem::path& folder,
            const std::function<bool()>& give_up) const;

 private:
  void stop() STRAIT_EXCLUDES(mutex_);
  void run() STRAIT_EXCLUDES(mutex_);
  std::filesystem::path folder(store::Step step, std::size_t host) const;
  // Both: UserError, StoreError.
  std::vector<transfer::ChunkTable> check_shards(const Held& made) const;
  void copy_to_neighbours(Held& made, const std::vector<transfer::ChunkTable>& tables) const;
  void decide(Held made, const std::string& problem) STRAIT_REQUIRES(mutex_);
  std::vector<store::Step> held_steps() const STRAIT_REQUIRES(mutex_);
  // Forgets the others, and removes those that are older than the newest of `steps`.
  void keep(const std::vector<store::Step>& steps) STRAIT_REQUIRES(mutex_);
  void fetch(const plan::WrittenShard& shard, const Held& one, const std::filesystem::path& to,
             const std::function<void()>& poll) const;
  template <class T>
  T wait_on(std::future<T>& future, std::size_t host) const;
  std::string place_of(const Held& one) const;

  const plan::Plan plan_;
  const net::RunId run_;
  const std::optional<OverHosts> over_;
  const std::vector<std::optional<std::size_t>> neighbours_;  // by host
  std::unique_ptr<store::MemoryDirectory> here_;
  std::atomic<bool> closing_ = false;
  mutable Mutex mutex_;
  Condition changed_;
  std::optional<Held> made_ STRAIT_GUARDED_BY(mutex_);  // not copied yet
  std::vector<Held> held_ STRAIT_GUARDED_BY(mutex_);    // newest first
  LossHistory losses_ STRAIT_GUARDED_BY(mutex_);
  std::vector<MemoryDecision> decisions_ STRAIT_GUARDED_BY(mutex_);
  std::thread thread_;  // over hosts
};

// Makes the newest checkpoint in memory that is still available one on this machine's disk, if it
// is newer than what this machine has on its disk, and skips checkpoints of bad weights. `commit`
// writes the manifest.
struct MemoryRecovery {
  LossHistory losses;
  std::function<void(store::Step, const std::vector<store::ShardFile>&)> commit;
  std::function<bool()> give_up;
  std::function<void(const Event&)> report;
};
// Its step, if no newer one was committed.
std::optional<store::Step> recover_from_memory(const RunDirectory& directory,
                                               MemoryCheckpoints& memory,
                                               const MemoryRecovery& with);

}  // namespace strait::run

#pragma once

#include "framework/mutex.h"
#include "framework/store/manifest.h"
#include "framework/store/memory_directory.h"
#include "launcher/recipe/run_files.h"
#include "launcher/run/checkpoint_table.h"
#include "launcher/run/coordinator_options.h"
#include "launcher/run/loss_history.h"

namespace strait::run {

// Makes checkpoints in memory (checkpoint.memory_every): in the memory directory of each process's
// host, and over hosts a copy in that of its neighbour, which fetches it with lower priority than
// activations. So any one host may be lost. The table says which of them stay.
//
// They outlive the processes that made them, not the launch. Once these processes have ended, one
// of them becomes a checkpoint on this machine's disk.
class MemoryCheckpoints : public MemoryHolder {
 public:
  using Held = CheckpointTable::Held;

  // The table outlives this object. `lost`: whether a host's agent is disconnected; any thread.
  // StoreError: the memory directory of this machine, where processes run here, cannot be made.
  MemoryCheckpoints(const plan::RunFile& run, CheckpointTable& table,
                    std::function<bool(std::size_t)> lost);
  ~MemoryCheckpoints() override;  // gives up what is being copied

  void hold(store::Step step, std::vector<store::ShardFile> files) override STRAIT_EXCLUDES(mutex_);
  std::vector<MemoryDecision> take_decisions() override STRAIT_EXCLUDES(mutex_);

  // Writes those files of one that are not there to this folder. `give_up` is called while it
  // waits, and ends that. UserError, StoreError: why it is not available.
  void save(const Held& one, const std::filesystem::path& folder,
            const std::function<bool()>& give_up) const;

  // Makes the newest one that is still available a checkpoint on this machine's disk, if it is
  // newer than what is complete there, and skips checkpoints with bad weights. Waits while the disk
  // is full. `commit` writes the manifest. No hold() follows. Returns its step, if no newer one was
  // committed.
  struct Recovery {
    LossHistory losses;
    std::function<void(store::Step, const std::vector<store::ShardFile>&)> commit;
    std::function<bool()> give_up;
    std::function<void(const Event&)> report;
  };
  std::optional<store::Step> recover(const Recovery& with) STRAIT_EXCLUDES(mutex_);

 private:
  void stop() STRAIT_EXCLUDES(mutex_);
  void run() STRAIT_EXCLUDES(mutex_);
  // Both: UserError, StoreError.
  std::vector<transfer::ChunkTable> check_shards(const Held& made) const;
  void copy_to_neighbours(Held& made, const std::vector<transfer::ChunkTable>& tables) const;
  void decide(Held made, const std::string& problem) STRAIT_REQUIRES(mutex_);
  void fetch(const plan::WrittenShard& shard, const Held& one, const std::filesystem::path& to,
             const std::function<void()>& poll) const;
  template <class T>
  T wait_on(std::future<T>& future, std::size_t host) const;
  void save_where_room(const Held& one, const Recovery& with) const;  // UserError, StoreError
  std::string place_of(const Held& one) const;

  const plan::Plan plan_;
  CheckpointTable& table_;
  const std::function<bool(std::size_t)> lost_;
  const std::vector<std::optional<std::size_t>> neighbours_;  // by host
  std::unique_ptr<store::MemoryDirectory> here_;
  std::atomic<bool> closing_ = false;
  mutable Mutex mutex_;
  Condition changed_;
  std::optional<Held> made_ STRAIT_GUARDED_BY(mutex_);  // not copied yet
  std::vector<MemoryDecision> decisions_ STRAIT_GUARDED_BY(mutex_);
  std::thread thread_;  // over hosts
};

}  // namespace strait::run

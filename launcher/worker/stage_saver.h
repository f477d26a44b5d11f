#pragma once

#include <future>

#include "framework/store/manifest.h"
#include "framework/store/sample.h"
#include "launcher/recipe/stage_job.h"
#include "launcher/worker/control_client.h"
#include "stages/stage.h"

namespace strait::worker {

// Writes one stage's shards of checkpoints: weights and optimizer state, and, if the recipe asks
// for it, the activation caches of its boundaries. The coordinator decides whether they become a
// checkpoint, and how the run ends if the last one does not. Used on the training thread.
//
// If the membership cannot change, checkpoints of checkpoint.every are written by another thread
// while the stage trains. All processes have to agree on that, so it depends on the plan and the
// step only. Otherwise training pauses.
//
// Checkpoints in memory (checkpoint.memory_every) are the same files in the host's memory directory
// and are also written during training. If both fall on the same step, they are copied there. One
// is undecided at a time: on a path that is slower than the interval the next ones are skipped, so
// training never waits.
class StageSaver {
 public:
  StageSaver(const plan::StageJob& job, ControlClient& control, stages::Stage& stage);
  // Gives up a checkpoint that is still being written.
  ~StageSaver();
  StageSaver(const StageSaver&) = delete;
  StageSaver& operator=(const StageSaver&) = delete;

  // Waits until the former checkpoint is committed or dropped. Then starts to write this one; if
  // training pauses, waits until it is committed or dropped, too.
  stages::CheckpointResult save(store::Step step);
  // Starts to write this checkpoint to memory, or skips it if the former one is not decided yet.
  stages::CheckpointResult keep(store::Step step);
  // After the last step: waits until the last checkpoint is committed or dropped.
  void finish();

 private:
  // The files of checkpoints in one directory. Shared with the control thread, which may remove
  // files of a dropped checkpoint after this object has ended.
  class Shards;
  // A checkpoint that is neither committed nor dropped yet.
  struct Pending {
    store::Step step{};
    std::uint32_t epoch = 0;
    stages::Stage::Snapshots snapshots;
    std::future<void> written;
  };

  bool is_during_training(store::Step step) const;
  bool is_in_memory(store::Step step) const;
  // Writes the checkpoint and reports it to the coordinator. Any thread.
  void write_and_report(const Pending& checkpoint);
  static std::vector<store::ShardFile> write(const Pending& checkpoint, const Shards& to);
  // Reports the files that `write` returns, or why there are none.
  void report_in_memory(store::Step step,
                        const std::function<std::vector<store::ShardFile>()>& write_files);
  std::vector<store::ShardFile> copy_to_memory(store::Step step,
                                               const std::vector<store::ShardFile>& files) const;
  run::CheckpointDecided wait_for_decision(const Pending& checkpoint);

  const plan::StageJob& job_;
  ControlClient& control_;
  stages::Stage& stage_;
  const std::shared_ptr<Shards> disk_;
  const std::shared_ptr<Shards> memory_;
  std::unique_ptr<Pending> pending_;
  std::unique_ptr<Pending> kept_;  // the latest in memory
};

}  // namespace strait::worker

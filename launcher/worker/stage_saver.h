#pragma once

#include <cstdint>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "framework/store/manifest.h"
#include "framework/store/sample.h"
#include "launcher/plan/stage_job.h"
#include "launcher/worker/control_client.h"
#include "launcher/worker/memory_shards.h"
#include "stages/stage.h"

namespace strait::worker {

// Saves one stage's shards of checkpoints: weights and optimizer state, and, if the recipe asks for
// it, the activation caches of its boundaries. The coordinator decides whether they become a
// checkpoint, and how the run ends when the last one does not. On the training thread.
//
// Checkpoints every so many steps are written by a thread of their own while the stage trains on,
// where the membership cannot change; all processes have to agree on it, so it depends on the plan
// and the step only. In all others training pauses.
//
// Checkpoints in memory (checkpoint.memory_every) are made beside training, too. Where both fall on
// one step, that in memory is a copy of the files.
class StageSaver {
 public:
  StageSaver(const plan::StageJob& job, ControlClient& control, stages::Stage& stage);
  // Gives up a checkpoint that is being written.
  ~StageSaver();
  StageSaver(const StageSaver&) = delete;
  StageSaver& operator=(const StageSaver&) = delete;

  // Waits until the former checkpoint is committed or dropped. Then begins to write this one, or
  // writes it and waits likewise.
  stages::CheckpointResult save(store::Step step);
  // Begins to write this checkpoint to memory, or skips it where the former one is not released
  // yet.
  stages::CheckpointResult keep(store::Step step);
  // After the last step: waits until the last checkpoint is committed or dropped.
  void finish();

 private:
  // Its files. Shared with the control thread, which may drop a checkpoint after the saver's end.
  class Shards;
  // A checkpoint that is not decided yet.
  struct Pending {
    store::Step step{};
    std::uint32_t epoch = 0;
    stages::Stage::Snapshots snapshots;
    std::future<void> written;
  };

  bool is_during_training(store::Step step) const;
  bool is_in_memory(store::Step step) const;
  // Writes, and reports it to the coordinator. On any thread.
  void write_and_report(const Pending& checkpoint);
  // Calls write(name, tensors) for each file.
  template <class WriteTensors>
  void write_tensors(const Pending& checkpoint, const WriteTensors& write) const;
  std::vector<store::ShardFile> write(const Pending& checkpoint) const;
  void write_to_memory(const Pending& checkpoint);
  void copy_to_memory(store::Step step, const std::vector<store::ShardFile>& files);
  ControlClient::Decision wait_for_decision(const Pending& checkpoint);

  const plan::StageJob& job_;
  ControlClient& control_;
  stages::Stage& stage_;
  const std::shared_ptr<Shards> shards_;
  MemoryShards memory_;
  std::unique_ptr<Pending> pending_;
  std::unique_ptr<Pending> kept_;  // the latest in memory
};

}  // namespace strait::worker

#pragma once

#include <memory>
#include <string>
#include <vector>

#include "framework/store/manifest.h"
#include "framework/store/sample.h"
#include "launcher/plan/stage_job.h"
#include "launcher/worker/control_client.h"
#include "stages/stage.h"

namespace strait::worker {

// Saves one stage's shards of checkpoints: weights and optimizer state, and, if the recipe asks for
// it, the activation caches of its boundaries. The coordinator decides whether they become a
// checkpoint, and how the run ends when the last one does not. On the training thread.
class StageSaver {
 public:
  StageSaver(const plan::StageJob& job, ControlClient& control, stages::Stage& stage);

  // Writes the shards and waits until the checkpoint is committed or dropped. Training pauses.
  stages::CheckpointResult save(store::Step step);

 private:
  // Its files. Shared with the control thread, which may drop a checkpoint after the saver's end.
  class Shards;

  std::vector<store::ShardFile> write(store::Step step) const;

  const plan::StageJob& job_;
  ControlClient& control_;
  stages::Stage& stage_;
  const std::shared_ptr<Shards> shards_;
};

}  // namespace strait::worker

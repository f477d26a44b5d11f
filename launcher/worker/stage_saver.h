#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "framework/store/manifest.h"
#include "framework/store/sample.h"
#include "launcher/plan/stage_job.h"
#include "launcher/worker/control_end.h"
#include "stages/stage.h"

namespace strait::worker {

// One stage's part of checkpoints: a shard with weights and optimizer state, and where the recipe
// says so a shard with its boundaries' activation caches. Keeps the last decision: a run must not
// end as done when its last checkpoint was dropped. On the training thread.
class StageSaver {
 public:
  StageSaver(const plan::StageJob& job, ControlEnd& control, stages::Stage& stage);

  // Writes the shards and waits until the checkpoint is committed or dropped; no stage trains on
  // meanwhile.
  stages::Saved save(store::Step step);

  // UserError where the last checkpoint was dropped.
  void check_last() const;

 private:
  // Its files. Shared with the control thread, which may drop a checkpoint after the saver's end.
  class Shards;

  std::vector<store::ShardFile> write(store::Step step) const;

  const plan::StageJob& job_;
  ControlEnd& control_;
  stages::Stage& stage_;
  const std::shared_ptr<Shards> shards_;
  std::optional<std::string> missing_;
};

}  // namespace strait::worker

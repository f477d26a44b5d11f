#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "framework/store/manifest.h"
#include "framework/store/sample.h"
#include "launcher/worker/control_end.h"
#include "launcher/plan/stage_job.h"
#include "stages/stage.h"

namespace strait::worker {

// One stage's part of checkpoints: a shard with what was learnt, and where the recipe says so a
// shard with what its boundaries remember of samples. Remembers the last answer: a run must not end
// as done when its last state is nowhere. On the thread that trains.
class StageSaver {
 public:
  StageSaver(const plan::StageJob& job, ControlEnd& control, stages::Stage& stage);

  // Writes the shards and waits until the checkpoint exists or is given up; by then no stage has
  // gone on.
  stages::Saved save(store::Step step);

  // UserError where the last checkpoint was given up.
  void check_last() const;

 private:
  // Its files. What is said of a checkpoint is heard on the listening thread, and may be heard
  // behind the saver's end.
  class Shards;

  std::vector<store::ShardFile> write(store::Step step) const;

  const plan::StageJob& job_;
  ControlEnd& control_;
  stages::Stage& stage_;
  const std::shared_ptr<Shards> shards_;
  std::optional<std::string> missing_;
};

}  // namespace strait::worker

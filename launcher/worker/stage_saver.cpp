#include "launcher/worker/stage_saver.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <string>
#include <utility>

#include "framework/mutex.h"
#include "framework/store/checkpoint.h"
#include "framework/store/store_error.h"
#include "framework/tensors/shard_writer.h"
#include "launcher/base/errors.h"

namespace strait::worker {
class StageSaver::Shards {
 public:
  explicit Shards(const plan::StageJob& job)
      : run_(job.run_directory),
        weights_(store::weights_name(job.process.stage, job.process.replica)),
        shard_(store::shard_name(job.process.stage, job.process.replica)),
        caches_(store::caches_name(job.process.stage, job.process.replica)) {}

  std::filesystem::path checkpoint(store::Step step) const {
    return store::checkpoint_directory(run_, step);
  }
  const std::string& weights() const { return weights_; }
  const std::string& shard() const { return shard_; }
  const std::string& caches() const { return caches_; }

  // From now on the files of this step belong to this epoch.
  void begin(store::Step step, std::uint32_t epoch) STRAIT_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    begun_ = {step, epoch};
  }

  // Removes the shards of this step if they were written in this epoch. The message may be late: if
  // the step was written again in a newer epoch, its files stay.
  void drop(store::Step step, std::uint32_t epoch) STRAIT_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    if (begun_ && begun_->first == step && begun_->second > epoch) return;
    for (const std::string& name : {weights_, shard_, caches_}) remove(step, name);
  }

 private:
  // A file that cannot be removed only takes space: training continues.
  void remove(store::Step step, const std::string& name) const {
    try {
      store::withdraw_shard(checkpoint(step), name);
    } catch (const store::StoreError& error) {
      spdlog::warn("{}", error.what());
    }
  }

  const std::filesystem::path run_;
  const std::string weights_;
  const std::string shard_;
  const std::string caches_;
  Mutex mutex_;
  std::optional<std::pair<store::Step, std::uint32_t>> begun_ STRAIT_GUARDED_BY(mutex_);
};

StageSaver::StageSaver(const plan::StageJob& job, ControlClient& control, stages::Stage& stage)
    : job_(job), control_(control), stage_(stage), shards_(std::make_shared<Shards>(job)) {
  control_.on_drop(
      [shards = shards_](store::Step step, std::uint32_t epoch) { shards->drop(step, epoch); });
}

stages::CheckpointResult StageSaver::save(store::Step step) {
  const std::uint32_t epoch = stage_.epoch();
  shards_->begin(step, epoch);
  try {
    control_.send(control::ShardsWritten{step, write(step), epoch});
  } catch (const store::StoreError& error) {
    const base::Failure failure = base::describe_failed_save(error);
    control_.send(control::ShardFailed{step, failure.code, failure.text, epoch});
  }
  const ControlClient::Decision decision = control_.wait_for_commit(step, epoch);
  // Removes again: the drop may have been handled before all files were written.
  if (decision.missing) shards_->drop(step, epoch);
  return {!decision.again, decision.arrival};
}

std::vector<store::ShardFile> StageSaver::write(store::Step step) const {
  const auto checkpoint = shards_->checkpoint(step);
  // Of the replicas only the first saves the weights that they agree on.
  std::set<std::string> names;
  for (const tensors::NamedTensor& tensor : stage_.model()) names.insert(tensor.name);
  std::vector<tensors::NamedTensor> state = stage_.saved_tensors();
  const auto weights = std::stable_partition(
      state.begin(), state.end(),
      [&names](const tensors::NamedTensor& tensor) { return !names.contains(tensor.name); });
  std::vector<store::ShardFile> files;
  if (weights != state.end()) {
    files.push_back(tensors::write_shard(checkpoint, shards_->weights(), {weights, state.end()}));
  }
  files.push_back(tensors::write_shard(checkpoint, shards_->shard(), {state.begin(), weights}));
  if (job_.plan.recipe.checkpoint.caches == recipe::SavedCaches::drop) return files;
  const std::vector<tensors::NamedTensor> cached = stage_.saved_caches();
  if (!cached.empty()) {
    files.push_back(tensors::write_shard(checkpoint, shards_->caches(), cached));
  }
  return files;
}

}  // namespace strait::worker

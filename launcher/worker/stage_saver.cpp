#include "launcher/worker/stage_saver.h"

#include <spdlog/spdlog.h>

#include "framework/store/checkpoint.h"
#include "framework/store/store_error.h"
#include "launcher/recipe/resume.h"
#include "launcher/recipe/run_files.h"

namespace strait::worker {
namespace {

// Closes the snapshots however the scope ends, because the stage may wait until they are read.
struct Closing {
  explicit Closing(const stages::Stage::Snapshots& read) : snapshots(read) {}
  ~Closing() { snapshots.close(); }
  Closing(const Closing&) = delete;
  Closing& operator=(const Closing&) = delete;

  const stages::Stage::Snapshots& snapshots;
};

}  // namespace

class StageSaver::Shards {
 public:
  Shards(std::filesystem::path directory, net::ProcessName process)
      : directory_(std::move(directory)),
        process_(process),
        files_(store::file_names(process_.stage, process_.replica)) {}

  std::filesystem::path checkpoint(store::Step step) const {
    return store::checkpoint_directory(directory_, step);
  }
  std::string weights() const { return store::weights_name(process_.stage, process_.replica); }
  std::string shard() const { return store::shard_name(process_.stage, process_.replica); }
  std::string caches() const { return store::caches_name(process_.stage, process_.replica); }
  std::string hashes() const { return store::hashes_name(process_.stage, process_.replica); }

  // The files of this step now belong to this epoch and hold these snapshots.
  void begin(store::Step step, std::uint32_t epoch, const stages::Stage::Snapshots& snapshots)
      STRAIT_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    begun_ = {step, epoch};
    snapshots_ = snapshots;
    // The drop came before this process began, so the snapshots need not be written.
    if (dropped_ == begun_) snapshots_.close();
  }

  // Removes the shards of this step if they were written in this epoch, and ends their writer. The
  // message may be late: if the step was written again in a newer epoch, its files stay.
  void drop(store::Step step, std::uint32_t epoch) STRAIT_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    if (begun_ && begun_->first == step && begun_->second > epoch) return;
    dropped_ = {step, epoch};
    if (begun_ == dropped_) snapshots_.close();
    remove_all(step);
  }

  // Called by the writer, whose last file may have been written after the drop.
  void end(store::Step step, std::uint32_t epoch) STRAIT_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    if (dropped_ != std::pair(step, epoch)) return;
    remove_all(step);
  }

  // False: another checkpoint is undecided.
  bool begin_undecided(store::Step step) STRAIT_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    if (undecided_) return false;
    undecided_ = step;
    return true;
  }
  // All processes have reported this checkpoint, so none is writing it.
  void decided(store::Step step, bool kept) STRAIT_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    if (undecided_ != step) return;  // this process has skipped it
    if (!kept) remove_all(step);
    undecided_.reset();
  }

 private:
  // A file that cannot be removed only takes space, so training continues.
  void remove_all(store::Step step) const {
    for (const std::string& name : files_) {
      try {
        store::withdraw_shard(checkpoint(step), name);
      } catch (const store::StoreError& error) {
        spdlog::warn("{}", error.what());
      }
    }
  }

  const std::filesystem::path directory_;
  const net::ProcessName process_;
  const std::vector<std::string> files_;
  Mutex mutex_;
  // The latest step and epoch begun and dropped.
  std::optional<std::pair<store::Step, std::uint32_t>> begun_ STRAIT_GUARDED_BY(mutex_);
  std::optional<std::pair<store::Step, std::uint32_t>> dropped_ STRAIT_GUARDED_BY(mutex_);
  stages::Stage::Snapshots snapshots_ STRAIT_GUARDED_BY(mutex_);
  std::optional<store::Step> undecided_ STRAIT_GUARDED_BY(mutex_);
};

StageSaver::StageSaver(const plan::StageJob& job, ControlClient& control, stages::Stage& stage)
    : job_(job),
      control_(control),
      stage_(stage),
      disk_(std::make_shared<Shards>(job.run_directory, job.process)),
      memory_(std::make_shared<Shards>(
          plan::memory_directory(job.run, job.plan.process(job.process).host_index), job.process)) {
  control_.on_decided([disk = disk_, memory = memory_](const run::CheckpointDecided& decided) {
    if (decided.in_memory) {
      memory->decided(decided.step, !decided.dropped);
    } else if (decided.dropped) {
      disk->drop(decided.step, decided.epoch);
    }
  });
}

StageSaver::~StageSaver() {
  for (const auto& one : {std::cref(pending_), std::cref(kept_)}) {
    if (!one.get()) continue;
    one.get()->snapshots.close();
    if (one.get()->written.valid()) one.get()->written.wait();
  }
}

bool StageSaver::is_during_training(store::Step step) const {
  return plan::saves_during_training(job_.plan.recipe) &&
         stages::is_due(step, job_.plan.recipe.checkpoint.every);
}

bool StageSaver::is_in_memory(store::Step step) const {
  return stages::is_due(step, job_.plan.recipe.checkpoint.memory_every);
}

stages::CheckpointResult StageSaver::save(store::Step step) {
  finish();
  // The checkpoint in memory copies from the memory that this one needs. Its writer waits for no
  // disk and no other process, so this wait is short.
  if (kept_ && kept_->written.valid()) kept_->written.get();
  auto checkpoint = std::make_unique<Pending>();
  checkpoint->step = step;
  checkpoint->epoch = stage_.epoch();
  checkpoint->snapshots = stage_.snapshot(step);
  disk_->begin(step, checkpoint->epoch, checkpoint->snapshots);
  if (is_during_training(step)) {
    pending_ = std::move(checkpoint);
    pending_->written =
        std::async(std::launch::async, [this, one = pending_.get()] { write_and_report(*one); });
    return {.snapshot = pending_->snapshots.state};
  }
  write_and_report(*checkpoint);
  const run::CheckpointDecided decision = wait_for_decision(*checkpoint);
  return {.complete = !decision.again, .rejoin = ControlClient::arrival(decision)};
}

stages::CheckpointResult StageSaver::keep(store::Step step) {
  const bool caches = !plan::saved_caches(job_.plan).empty();
  // A cache can have only one snapshot at a time. The next step's data of another process would end
  // the older one.
  if (caches) finish();
  const bool on_disk =
      !pending_ || pending_->written.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  if (!on_disk || !memory_->begin_undecided(step)) {
    if (caches) stage_.snapshot(step).close();  // what they have preserved is discarded
    control_.send(run::ShardsWritten{.step = step, .in_memory = true, .failed = true});
    return {};
  }
  if (kept_ && kept_->written.valid()) kept_->written.get();
  kept_ = std::make_unique<Pending>();
  kept_->step = step;
  kept_->snapshots = stage_.snapshot(step);
  kept_->written = std::async(std::launch::async, [this, &one = *kept_] {
    const Closing closing{one.snapshots};
    report_in_memory(one.step, [&] { return write(one, *memory_); });
  });
  return {.snapshot = kept_->snapshots.state};
}

void StageSaver::finish() {
  if (!pending_) return;
  pending_->written.get();
  wait_for_decision(*pending_);
  pending_.reset();
}

run::CheckpointDecided StageSaver::wait_for_decision(const Pending& checkpoint) {
  auto decision = control_.wait_for_commit(checkpoint.step, checkpoint.epoch);
  // Removes the files again, because the drop may have been handled before all of them were
  // written.
  if (decision.dropped) disk_->drop(checkpoint.step, checkpoint.epoch);
  return decision;
}

void StageSaver::write_and_report(const Pending& checkpoint) {
  const store::Step step = checkpoint.step;
  const Closing closing{checkpoint.snapshots};
  std::vector<store::ShardFile> files;
  try {
    files = write(checkpoint, *disk_);
    control_.send(run::ShardsWritten{step, files, checkpoint.epoch});
  } catch (const tensors::SnapshotClosed&) {
    spdlog::info("checkpoint {} was given up before it was written", number(step));
  } catch (const store::StoreError& error) {
    const base::Failure failure = base::describe_failed_save(error);
    control_.send(run::ShardsWritten{.step = step,
                                     .epoch = checkpoint.epoch,
                                     .failed = true,
                                     .problem = failure.text,
                                     .code = failure.code});
  }
  if (is_in_memory(step) && is_during_training(step)) {
    if (!files.empty() && memory_->begin_undecided(step)) {
      report_in_memory(step, [&] { return copy_to_memory(step, files); });
    } else {
      control_.send(run::ShardsWritten{.step = step, .in_memory = true, .failed = true});
    }
  }
  disk_->end(step, checkpoint.epoch);
}

std::vector<store::ShardFile> StageSaver::write(const Pending& checkpoint, const Shards& to) {
  const auto folder = to.checkpoint(checkpoint.step);
  std::vector<store::ShardFile> files;
  store::TensorHashes hashes;
  const auto add = [&](const std::string& name, std::span<const tensors::TensorSource> tensors) {
    if (tensors.empty() && name != to.shard()) return;
    files.push_back(tensors::write_shard(folder, name, tensors, {}, &hashes));
  };
  const std::vector<tensors::TensorSource> state = checkpoint.snapshots.state->sources();
  add(to.weights(), std::span(state).first(checkpoint.snapshots.weights));
  add(to.shard(), std::span(state).subspan(checkpoint.snapshots.weights));
  std::vector<tensors::TensorSource> cached;
  for (const auto& [prefix, cache] : checkpoint.snapshots.caches) {
    std::ranges::move(cache->sources(prefix), std::back_inserter(cached));
  }
  add(to.caches(), cached);
  files.push_back(tensors::write_hashes(folder, to.hashes(), hashes));
  return files;
}

void StageSaver::report_in_memory(
    store::Step step, const std::function<std::vector<store::ShardFile>()>& write_files) {
  run::ShardsWritten report{.step = step, .in_memory = true};
  try {
    report.files = write_files();
  } catch (const tensors::SnapshotClosed&) {
    report.failed = true;  // a newer one began
  } catch (const store::StoreError& error) {
    report.failed = true;
    report.problem = error.what();
  }
  control_.send(report);
}

std::vector<store::ShardFile> StageSaver::copy_to_memory(
    store::Step step, const std::vector<store::ShardFile>& files) const {
  const auto folder = memory_->checkpoint(step);
  // Not its parents: where the host has no directory in memory, none is made.
  std::error_code error;
  std::filesystem::create_directory(folder, error);
  if (error) throw store::system_error("make the directory", folder, error.value());
  for (const store::ShardFile& file : files) {
    store::copy_shard(disk_->checkpoint(step) / file.name, folder / file.name, file);
  }
  return files;
}

}  // namespace strait::worker

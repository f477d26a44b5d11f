#include "launcher/worker/stage_saver.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <functional>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "framework/mutex.h"
#include "framework/store/checkpoint.h"
#include "framework/store/store_error.h"
#include "framework/tensors/shard_writer.h"
#include "launcher/base/errors.h"

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
  explicit Shards(const plan::StageJob& job)
      : run_(job.run_directory),
        process_(job.process),
        files_(store::file_names(process_.stage, process_.replica)) {}

  std::filesystem::path checkpoint(store::Step step) const {
    return store::checkpoint_directory(run_, step);
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

  const std::filesystem::path run_;
  const net::ProcessName process_;
  const std::vector<std::string> files_;
  Mutex mutex_;
  // The latest step and epoch begun and dropped.
  std::optional<std::pair<store::Step, std::uint32_t>> begun_ STRAIT_GUARDED_BY(mutex_);
  std::optional<std::pair<store::Step, std::uint32_t>> dropped_ STRAIT_GUARDED_BY(mutex_);
  stages::Stage::Snapshots snapshots_ STRAIT_GUARDED_BY(mutex_);
};

StageSaver::StageSaver(const plan::StageJob& job, ControlClient& control, stages::Stage& stage)
    : job_(job),
      control_(control),
      stage_(stage),
      shards_(std::make_shared<Shards>(job)),
      memory_(control) {
  control_.on_drop(
      [shards = shards_](store::Step step, std::uint32_t epoch) { shards->drop(step, epoch); });
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
  shards_->begin(step, checkpoint->epoch, checkpoint->snapshots);
  if (is_during_training(step)) {
    pending_ = std::move(checkpoint);
    pending_->written =
        std::async(std::launch::async, [this, one = pending_.get()] { write_and_report(*one); });
    return {.snapshot = pending_->snapshots.state};
  }
  write_and_report(*checkpoint);
  const ControlClient::Decision decision = wait_for_decision(*checkpoint);
  return {.complete = !decision.again, .rejoin = decision.arrival};
}

stages::CheckpointResult StageSaver::keep(store::Step step) {
  const bool caches = std::ranges::any_of(job_.plan.links, &plan::Plan::Link::has_cache);
  // A cache can have only one snapshot at a time. The next step's data of another process would end
  // the older one.
  if (caches) finish();
  const bool on_disk =
      !pending_ || pending_->written.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  if (!on_disk || !memory_.begin(step)) {
    if (caches) stage_.snapshot(step).close();  // what they have preserved is discarded
    memory_.skip(step, on_disk ? "the former one is still on its way to another host"
                               : "a checkpoint is still being written to disk");
    return {};
  }
  if (kept_ && kept_->written.valid()) kept_->written.get();
  kept_ = std::make_unique<Pending>();
  kept_->step = step;
  kept_->snapshots = stage_.snapshot(step);
  kept_->written = std::async(std::launch::async, [this] { write_to_memory(*kept_); });
  return {.snapshot = kept_->snapshots.state};
}

void StageSaver::finish() {
  if (!pending_) return;
  pending_->written.get();
  wait_for_decision(*pending_);
  pending_.reset();
}

ControlClient::Decision StageSaver::wait_for_decision(const Pending& checkpoint) {
  auto decision = control_.wait_for_commit(checkpoint.step, checkpoint.epoch);
  // Removes the files again, because the drop may have been handled before all of them were
  // written.
  if (decision.missing) shards_->drop(checkpoint.step, checkpoint.epoch);
  return decision;
}

void StageSaver::write_and_report(const Pending& checkpoint) {
  const store::Step step = checkpoint.step;
  const Closing closing{checkpoint.snapshots};
  std::vector<store::ShardFile> files;
  try {
    files = write(checkpoint);
    control_.send(run::ShardsWritten{step, files, checkpoint.epoch});
  } catch (const tensors::SnapshotClosed&) {
    spdlog::info("checkpoint {} was given up before it was written", number(step));
  } catch (const store::StoreError& error) {
    const base::Failure failure = base::describe_failed_save(error);
    control_.send(run::ShardFailed{step, failure.code, failure.text, checkpoint.epoch});
  }
  if (is_in_memory(step) && is_during_training(step)) copy_to_memory(step, files);
  shards_->end(step, checkpoint.epoch);
}

template <class WriteTensors>
void StageSaver::write_tensors(const Pending& checkpoint, const WriteTensors& write) const {
  const std::vector<tensors::TensorSource> state = checkpoint.snapshots.state->sources();
  const auto weights = std::span(state).first(checkpoint.snapshots.weights);
  if (!weights.empty()) write(shards_->weights(), weights);
  write(shards_->shard(), std::span(state).subspan(weights.size()));
  std::vector<tensors::TensorSource> cached;
  for (const auto& [prefix, cache] : checkpoint.snapshots.caches) {
    std::ranges::move(cache->sources(prefix), std::back_inserter(cached));
  }
  if (!cached.empty()) write(shards_->caches(), std::span<const tensors::TensorSource>(cached));
}

std::vector<store::ShardFile> StageSaver::write(const Pending& checkpoint) const {
  const auto folder = shards_->checkpoint(checkpoint.step);
  std::vector<store::ShardFile> files;
  store::TensorHashes hashes;
  write_tensors(checkpoint, [&](const std::string& name, auto tensors) {
    files.push_back(tensors::write_shard(folder, name, tensors, {}, &hashes));
  });
  files.push_back(tensors::write_hashes(folder, shards_->hashes(), hashes));
  return files;
}

void StageSaver::write_to_memory(const Pending& checkpoint) {
  const Closing closing{checkpoint.snapshots};
  std::vector<MemoryShards::File> files;
  store::TensorHashes hashes;
  const auto add = [&](const std::string& name, const auto& write) {
    auto content = std::make_unique<store::MemoryFile>(name);
    const store::FileSummary summary = write(*content);
    files.push_back({{name, summary.size, summary.hash}, std::move(content)});
  };
  try {
    write_tensors(checkpoint, [&](const std::string& name, auto tensors) {
      add(name, [&](store::MemoryFile& file) {
        return tensors::write_safetensors(
            file, tensors,
            &hashes.files.emplace_back(name, std::vector<store::TensorHash>()).second);
      });
    });
    add(shards_->hashes(), [&](store::MemoryFile& file) {
      const std::string text = hashes.format();
      file.write(std::as_bytes(std::span(text)));
      return file.seal();
    });
    memory_.hold(checkpoint.step, std::move(files));
  } catch (const tensors::SnapshotClosed&) {
    memory_.skip(checkpoint.step, "a newer one began before it was copied");
  } catch (const store::StoreError& error) {
    memory_.skip(checkpoint.step, error.what());
  }
}

void StageSaver::copy_to_memory(store::Step step, const std::vector<store::ShardFile>& files) {
  if (!memory_.begin(step)) {
    memory_.skip(step, "the former one is still on its way to another host");
    return;
  }
  if (files.empty()) return memory_.skip(step, "its files could not be written");
  try {
    std::vector<MemoryShards::File> copies;
    copies.reserve(files.size());
    for (const store::ShardFile& file : files) {
      copies.push_back(worker::copy_to_memory(shards_->checkpoint(step), file));
    }
    memory_.hold(step, std::move(copies));
  } catch (const store::StoreError& error) {
    memory_.skip(step, error.what());
  }
}

}  // namespace strait::worker

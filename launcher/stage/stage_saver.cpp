#include "launcher/stage/stage_saver.h"

#include <spdlog/spdlog.h>

#include <initializer_list>
#include <string>
#include <utility>

#include "framework/store/checkpoint.h"
#include "framework/store/store_error.h"
#include "launcher/failure.h"
#include "launcher/user_error.h"

namespace strait::launcher {
namespace {

// What cannot be removed does no harm but to the space it takes: training goes on.
void withdraw(const std::filesystem::path& checkpoint, std::initializer_list<std::string> shards) {
  for (const std::string& shard : shards) {
    try {
      store::withdraw_shard(checkpoint, shard);
    } catch (const store::StoreError& error) {
      spdlog::warn("{}", error.what());
    }
  }
}

}  // namespace

StageSaver::StageSaver(const StageJob& job, ControlEnd& control, stages::Stage& stage)
    : job_(job),
      control_(control),
      stage_(stage),
      shard_(store::shard_name(job.process.stage, job.process.replica)),
      caches_(store::caches_name(job.process.stage, job.process.replica)) {
  control_.on_drop([run = job.run_directory, shard = shard_, caches = caches_](store::Step step) {
    withdraw(store::checkpoint_directory(run, step), {shard, caches});
  });
}

stages::Saved StageSaver::save(store::Step step) {
  const auto checkpoint = store::checkpoint_directory(job_.run_directory, step);
  const std::uint32_t epoch = stage_.epoch();
  try {
    control_.say(ShardsWritten{step, write(checkpoint), epoch});
  } catch (const store::StoreError& error) {
    control_.say(ShardFailed{step, exit_code_of(error), error.what(), epoch});
  }
  ControlEnd::Decision decision = control_.wait_for_commit(step, epoch);
  missing_ = std::move(decision.missing);
  // Again: it may have been given up by others before all of it was written here.
  if (missing_) withdraw(checkpoint, {shard_, caches_});
  return {!decision.again, decision.arrival};
}

std::vector<store::ShardFile> StageSaver::write(const std::filesystem::path& checkpoint) const {
  std::vector<store::ShardFile> files;
  files.push_back(store::write_shard(checkpoint, shard_, stage_.saved_tensors()));
  if (job_.plan.recipe.checkpoint.caches == SavedCaches::drop) return files;
  const std::vector<store::NamedTensor> remembered = stage_.saved_caches();
  if (!remembered.empty()) files.push_back(store::write_shard(checkpoint, caches_, remembered));
  return files;
}

void StageSaver::check_last() const {
  if (missing_) throw UserError(ExitCode::storage_full, *missing_);
}

}  // namespace strait::launcher

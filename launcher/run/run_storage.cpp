#include "launcher/run/run_storage.h"

#include "framework/store/store_error.h"

namespace strait::run {

void RunStorage::send_inputs(const std::string& resume, store::Part part, const Report& report) {
  if (transfer_ == nullptr) return;
  RunTransfer::Needs needs{hosts_.hosts_with_agents(),
                           plan::plugin_copies(run_.plan.recipe.plugins), resume};
  needs.part = part;
  needs.begins = resume.empty();
  transfer_->deliver_inputs(
      run_.plan, needs, [this] { hosts_.check_startup(stops_); }, report);
}

transfer::CheckpointDownloader::Settings RunStorage::downloads() const {
  using recipe::CheckpointHome;
  using store::Part;
  const auto& checkpoint = run_.plan.recipe.checkpoint;
  transfer::CheckpointDownloader::Settings settings{directory_.path(), checkpoint.keep};
  switch (checkpoint.home) {
    case CheckpointHome::all:
      break;
    case CheckpointHome::automatic:
      settings.awaited = Part::weights;
      break;
    case CheckpointHome::weights:
      settings.fetched = settings.awaited = Part::weights;
      break;
    case CheckpointHome::none:
      settings.fetched = settings.awaited = Part::none;
      break;
  }
  return settings;
}

void RunStorage::start_checkpoints(ManifestOf manifest) {
  manifest_ = std::move(manifest);
  if (transfer_ != nullptr) transfer_->start_downloads(downloads());
}

MemoryHolder* RunStorage::hold_in_memory(const Report& report) {
  if (run_.plan.recipe.checkpoint.memory_every == 0) return nullptr;
  std::optional<MemoryCheckpoints::OverHosts> over;
  if (transfer_ != nullptr) {
    over.emplace(
        MemoryCheckpoints::OverHosts{transfer_->agent(), transfer_->hosts(),
                                     [this](std::size_t host) { return hosts_.lost(host); }});
  }
  try {
    memory_ = std::make_unique<MemoryCheckpoints>(run_, std::move(over));
  } catch (const store::StoreError& error) {
    report({"not_in_memory", fmt::format("there are no checkpoints in memory: {}", error.what())});
  }
  return memory_.get();
}

void RunStorage::commit(store::Step step, const std::vector<store::ShardFile>& files) {
  store::commit_checkpoint(store::checkpoint_directory(directory_.path(), step),
                           manifest_(step, files), {},
                           transfer_ == nullptr ? store::Shards::here : store::Shards::elsewhere);
  if (transfer_ != nullptr) transfer_->checkpoint_committed(run_.plan, step, files);
}

void RunStorage::judge(const LossHistory& losses) {
  losses_ = losses;
  if (transfer_ != nullptr) transfer_->judged(losses.good(), best());
  if (memory_) memory_->judge(losses);
}

store::Pruned RunStorage::prune(store::PruneTime time) {
  store::PruneRule rule{run_.plan.recipe.checkpoint.keep, losses_.good()};
  rule.best = best();
  if (transfer_ != nullptr) {
    // A finished download prunes: until then older checkpoints are the newest that are complete
    // here.
    if (time == store::PruneTime::after_commit) return {};
    rule.part = downloads().fetched;
  }
  return store::prune_checkpoints(directory_.path(), rule, time);
}

void RunStorage::rewind(store::Step step) {
  if (transfer_ == nullptr) return;
  transfer_->rewind(hosts_.hosts_with_agents(), step, [this] { hosts_.check_startup(stops_); });
}

std::vector<std::string> RunStorage::take_warnings() {
  return transfer_ == nullptr ? std::vector<std::string>() : transfer_->take_warnings();
}

std::function<bool()> RunStorage::one_more_stop() const {
  return [this, before = stops_.load()] { return stops_.load() > before; };
}

std::optional<store::Step> RunStorage::save_from_memory(const Report& report) {
  if (!memory_) return std::nullopt;
  const auto commit = [this](store::Step step, const std::vector<store::ShardFile>& files) {
    store::commit_checkpoint(store::checkpoint_directory(directory_.path(), step),
                             manifest_(step, files));
  };
  return recover_from_memory(directory_, *memory_, {losses_, commit, one_more_stop(), report});
}

void RunStorage::finish(const Report& report) {
  if (transfer_ == nullptr) return;
  const auto lost = [this](std::size_t host) { return hosts_.lost(host); };
  // A host that is gone sends nothing more; its link would be waited for until it gives up.
  for (std::size_t host = 0; host < run_.plan.hosts.size(); ++host) {
    if (lost(host)) transfer_->remove_host(host);
  }
  const auto give_up = one_more_stop();
  const auto finished = transfer_->finish_downloads(give_up, report);
  if (!finished.missing.empty()) {
    report(
        {"download_failed",
         fmt::format("the last checkpoint is not complete on this machine: {}", finished.missing)});
  }
  report({"on_hosts", finished.left});
  if (give_up()) return;
  for (const std::string& missing :
       transfer_->download_traces(run_.plan, directory_.path(), give_up, lost)) {
    report({"no_trace", fmt::format("no trace of a process: {}", missing)});
  }
}

}  // namespace strait::run

#include "launcher/run/run_storage.h"

#include "framework/store/store_error.h"
#include "launcher/base/text.h"

namespace strait::run {
namespace {

std::shared_ptr<CheckpointTable> table_of(const plan::RunFile& run, const RunDirectory& directory,
                                          RunTransfer* transfer) {
  const auto& checkpoint = run.plan.recipe.checkpoint;
  const bool automatic = checkpoint.home == recipe::CheckpointHome::automatic;
  const CheckpointTable::Settings settings{directory.path(), checkpoint.keep,
                                           automatic ? store::Part::all : part_here(run.plan)};
  if (transfer != nullptr) {
    return std::make_shared<CheckpointTable>(settings, transfer->hosts(), &transfer->agent());
  }
  const RunTransfer::Host here{"", {}, directory.path(), plan::memory_directory(run.run, 0)};
  return std::make_shared<CheckpointTable>(settings, std::vector{here}, nullptr);
}

}  // namespace

store::Part part_here(const plan::Plan& plan) {
  if (!recipe::stores_on_hosts(plan.recipe.hosts.backend)) return store::Part::all;
  switch (plan.recipe.checkpoint.home) {
    case recipe::CheckpointHome::all:
      return store::Part::all;
    case recipe::CheckpointHome::none:
      return store::Part::none;
    case recipe::CheckpointHome::automatic:
    case recipe::CheckpointHome::weights:
      break;
  }
  return store::Part::weights;
}

CheckpointDownloader::Finished finish_downloads(CheckpointDownloader& downloader,
                                                const std::function<bool()>& give_up,
                                                const std::function<void(const Event&)>& report) {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::seconds kFirstReport{1};  // shorter waits need no report
  constexpr std::chrono::seconds kReportEvery{5};  // the log keeps every one
  auto due = Clock::now() + kFirstReport;
  return downloader.finish([&](const CheckpointDownloader::Remaining& remaining) {
    if (give_up()) return true;
    if (Clock::now() >= due) {
      due = Clock::now() + kReportEvery;
      report({"gathering",
              fmt::format(
                  "downloading checkpoint {}, {} to go; one more Ctrl-C leaves it on the hosts",
                  number(remaining.step), base::byte_text(remaining.bytes))});
    }
    return false;
  });
}

RunStorage::RunStorage(RunHosts& hosts, const plan::RunFile& run, const RunDirectory& directory,
                       const std::atomic<int>& stops)
    : hosts_(hosts),
      transfer_(hosts.file_transfer()),
      run_(run),
      directory_(directory),
      stops_(stops),
      table_(table_of(run, directory, transfer_)) {}

void RunStorage::send_inputs(const std::string& resume, store::Part part, const Report& report) {
  if (transfer_ == nullptr) return;
  RunTransfer::Needs needs{hosts_.hosts_with_agents(),
                           plan::plugin_copies(run_.plan.recipe.plugins), resume};
  needs.part = part;
  needs.begins = resume.empty();
  transfer_->deliver_inputs(
      run_.plan, needs, [this] { hosts_.check_startup(stops_); }, report);
}

void RunStorage::start_checkpoints(ManifestOf manifest) {
  manifest_ = std::move(manifest);
  if (transfer_ == nullptr) return;
  transfer_->inform(table_);
  downloader_ = std::make_unique<CheckpointDownloader>(
      *table_, CheckpointDownloader::Settings{part_here(run_.plan)});
}

MemoryHolder* RunStorage::hold_in_memory(const Report& report) {
  if (run_.plan.recipe.checkpoint.memory_every == 0) return nullptr;
  try {
    memory_ = std::make_unique<MemoryCheckpoints>(
        run_, *table_, [this](std::size_t host) { return hosts_.lost(host); });
  } catch (const store::StoreError& error) {
    report({"not_in_memory", fmt::format("there are no checkpoints in memory: {}", error.what())});
  }
  return memory_.get();
}

void RunStorage::commit(store::Step step, const std::vector<store::ShardFile>& files) {
  store::commit_checkpoint(store::checkpoint_directory(directory_.path(), step),
                           manifest_(step, files), {},
                           transfer_ == nullptr ? store::Shards::here : store::Shards::elsewhere);
  if (downloader_) downloader_->add(step, plan::written_shards(run_.plan, files));
}

void RunStorage::judge(const LossHistory& losses) {
  losses_ = losses;
  table_->judge(losses.good(), losses.best(run_.plan.recipe.checkpoint.keep_best));
}

void RunStorage::rewind(store::Step step) {
  if (transfer_ == nullptr) return;
  transfer_->rewind(hosts_.hosts_with_agents(), step, [this] { hosts_.check_startup(stops_); });
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
  return memory_->recover({losses_, commit, one_more_stop(), report});
}

void RunStorage::finish(const Report& report) {
  if (!downloader_) return;
  const auto lost = [this](std::size_t host) { return hosts_.lost(host); };
  // A host that is gone sends nothing more; its link would be waited for until it gives up.
  for (std::size_t host = 0; host < run_.plan.hosts.size(); ++host) {
    if (lost(host)) transfer_->remove_host(host);
  }
  const auto give_up = one_more_stop();
  const auto finished = finish_downloads(*downloader_, give_up, report);
  if (!finished.missing.empty()) {
    report(
        {"download_failed",
         fmt::format("the last checkpoint is not complete on this machine: {}", finished.missing)});
  }
  report({"on_hosts", finished.left});
  if (give_up()) return;
  for (const std::string& missing : download_traces(run_.plan, give_up)) {
    report({"no_trace", fmt::format("no trace of a process: {}", missing)});
  }
}

std::vector<std::string> RunStorage::download_traces(const plan::Plan& plan,
                                                     const std::function<bool()>& give_up) {
  if (transfer_ == nullptr) return {};
  return transfer_->download_traces(plan, directory_.path(), give_up,
                                    [this](std::size_t host) { return hosts_.lost(host); });
}

}  // namespace strait::run

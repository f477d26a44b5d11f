#include "launcher/run/run_storage.h"

#include <fmt/format.h>

#include <optional>
#include <utility>

namespace strait::run {
namespace {

namespace fs = std::filesystem;

class LocalStorage : public RunStorage {
 public:
  LocalStorage(const plan::RunFile& run, fs::path directory)
      : run_(run), directory_(std::move(directory)) {}

  void send_inputs(const std::string& /*resume*/, store::Part /*part*/,
                   const Report& /*report*/) override {}
  void start_downloads() override {}
  void commit(const store::Manifest& manifest) override {
    store::commit_checkpoint(store::checkpoint_directory(directory_, manifest.step), manifest);
  }
  void known_good(store::Step step) override { good_ = step; }
  store::Pruned prune(store::PruneTime time) override {
    return store::prune_checkpoints(directory_, {run_.plan.recipe.checkpoint.keep, good_}, time);
  }
  void rewind(store::Step /*step*/) override {}
  std::unique_ptr<MemoryCheckpoints> memory() override {
    return std::make_unique<MemoryCheckpoints>(run_);
  }
  std::vector<std::string> take_warnings() override { return {}; }
  void finish(const Report& /*report*/) override {}

 private:
  const plan::RunFile& run_;
  const fs::path directory_;
  std::optional<store::Step> good_;
};

class HostStorage : public RunStorage {
 public:
  HostStorage(RunHosts& hosts, const plan::RunFile& run, fs::path directory,
              const std::atomic<int>& stops)
      : hosts_(hosts),
        transfer_(*hosts.file_transfer()),
        run_(run),
        directory_(std::move(directory)),
        stops_(stops) {}

  void send_inputs(const std::string& resume, store::Part part, const Report& report) override {
    RunTransfer::Needs needs{hosts_.hosts_with_agents(),
                             plan::plugin_copies(run_.plan.recipe.plugins), resume};
    needs.part = part;
    needs.begins = resume.empty();
    transfer_.deliver_inputs(
        run_.plan, needs, [this] { hosts_.check_startup(stops_); }, report);
  }

  void start_downloads() override { transfer_.start_downloads(downloads()); }

  void commit(const store::Manifest& manifest) override {
    store::commit_checkpoint(store::checkpoint_directory(directory_, manifest.step), manifest, {},
                             store::Shards::elsewhere);
    transfer_.checkpoint_committed(run_.plan, manifest.step, manifest.files);
  }

  void known_good(store::Step step) override {
    good_ = step;
    transfer_.known_good(step);
  }

  // A finished download prunes: until then older checkpoints are the newest that are complete here.
  store::Pruned prune(store::PruneTime time) override {
    if (time == store::PruneTime::after_commit) return {};
    return store::prune_checkpoints(
        directory_, {run_.plan.recipe.checkpoint.keep, good_, downloads().fetched}, time);
  }

  void rewind(store::Step step) override {
    transfer_.rewind(hosts_.hosts_with_agents(), step, [this] { hosts_.check_startup(stops_); });
  }

  std::unique_ptr<MemoryCheckpoints> memory() override {
    return std::make_unique<MemoryCheckpoints>(
        run_, MemoryCheckpoints::OverHosts{transfer_.agent(), transfer_.hosts(),
                                           [this](std::size_t host) { return hosts_.lost(host); }});
  }

  std::vector<std::string> take_warnings() override { return transfer_.take_warnings(); }

  void finish(const Report& report) override {
    for (std::size_t host = 0; host < run_.plan.hosts.size(); ++host) {
      if (hosts_.lost(host)) transfer_.remove_host(host);
    }
    const auto give_up = [this, before = stops_.load()] { return stops_.load() > before; };
    const auto finished = transfer_.finish_downloads(give_up, report);
    if (!finished.missing.empty()) {
      report(
          {"download_failed", fmt::format("the last checkpoint is not complete on this machine: {}",
                                          finished.missing)});
    }
    report({"on_hosts", finished.left});
    if (give_up()) return;
    const auto lost = [this](std::size_t host) { return hosts_.lost(host); };
    for (const std::string& missing :
         transfer_.download_traces(run_.plan, directory_, give_up, lost)) {
      report({"no_trace", fmt::format("no trace of a process: {}", missing)});
    }
  }

 private:
  transfer::CheckpointDownloader::Settings downloads() const {
    using recipe::CheckpointHome;
    using store::Part;
    const auto& checkpoint = run_.plan.recipe.checkpoint;
    transfer::CheckpointDownloader::Settings settings{directory_, checkpoint.keep};
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

  RunHosts& hosts_;
  RunTransfer& transfer_;
  const plan::RunFile& run_;
  const fs::path directory_;
  const std::atomic<int>& stops_;
  std::optional<store::Step> good_;
};

}  // namespace

std::unique_ptr<RunStorage> storage_of(RunHosts& hosts, const plan::RunFile& run,
                                       const fs::path& directory, const std::atomic<int>& stops) {
  if (hosts.file_transfer() == nullptr) return std::make_unique<LocalStorage>(run, directory);
  return std::make_unique<HostStorage>(hosts, run, directory, stops);
}

}  // namespace strait::run

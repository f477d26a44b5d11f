#include "launcher/launch/run_launch.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "framework/net/node.h"
#include "framework/store/checkpoint.h"
#include "framework/trace/merge_traces.h"
#include "launcher/base/build_id.h"
#include "launcher/base/errors.h"
#include "launcher/console/report.h"
#include "launcher/control/coordinator.h"
#include "launcher/control/resume_changes.h"
#include "launcher/control/run_file_names.h"
#include "launcher/control/run_recorder.h"
#include "launcher/control/run_status.h"
#include "launcher/control/stop_signals.h"
#include "launcher/launch/host_memory.h"
#include "launcher/launch/local_memory.h"
#include "launcher/launch/run_hosts.h"
#include "launcher/launch/slow_observer.h"
#include "launcher/launch/stage_starter.h"

namespace strait::launch {
namespace {

namespace fs = std::filesystem;

using Report = std::function<void(const control::Event&)>;

// Tolerates silent hosts once training has begun, and reports downloads that fail.
class HostObserver : public control::RunObserver {
 public:
  HostObserver(RunHosts& hosts, Report report) : hosts_(hosts), report_(std::move(report)) {}
  void training(store::Step /*from*/, store::Step /*to*/) override { hosts_.tolerate_outages(); }
  void reports(const std::vector<control::ProcessReport>& /*processes*/) override {
    if (hosts_.file_transfer() == nullptr) return;
    for (const std::string& trouble : hosts_.file_transfer()->take_warnings())
      report_({"not_home", trouble});
  }

 private:
  RunHosts& hosts_;
  Report report_;
};

// Commits a checkpoint once all shards are written.
void commit_step(const control::RunDirectory& directory, const plan::RunFile& run,
                 std::uint32_t generation, std::int64_t codec_generation, store::Step step,
                 const std::vector<store::ShardFile>& files, RunTransfer* transfer) {
  store::Manifest manifest = plan::manifest_for(run, generation, step);
  manifest.codec_generation = codec_generation;
  manifest.files = files;
  plan::mark_missing_replicas(manifest, run.plan);
  const auto folder = store::checkpoint_directory(directory.path(), step);
  if (transfer != nullptr) {
    store::commit_checkpoint(folder, manifest, {}, store::Shards::elsewhere);
    transfer->checkpoint_committed(run.plan, step, files);
    return;
  }
  store::commit_checkpoint(folder, manifest);
}

transfer::CheckpointDownloader::Settings downloads_of(const recipe::Recipe& recipe,
                                                      const control::RunDirectory& directory) {
  using recipe::CheckpointHome;
  using store::Part;
  transfer::CheckpointDownloader::Settings settings{directory.path(), recipe.checkpoint.keep};
  switch (recipe.checkpoint.home) {
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

// Sends the files that processes read to the hosts, and starts to download checkpoints.
void send_inputs(RunHosts& hosts, const plan::RunFile& run, const control::RunDirectory& directory,
                 const control::StopSignals& signals, const LaunchOptions& options) {
  hosts.file_transfer()->deliver_inputs(
      run.plan, {hosts.called(), plan::plugin_copies(run.plan.recipe.plugins), options.resume},
      [&] { hosts.check_startup(signals.count()); },
      [&options](const control::Event& event) {
        for (control::RunObserver* observer : options.observers)
          observer->event("the launcher", event);
      });
  hosts.file_transfer()->start_downloads(downloads_of(run.plan.recipe, directory));
}

// Waits for downloads in progress; another stop request ends the wait.
void finish_downloads(RunHosts& hosts, const plan::RunFile& run,
                      const control::RunDirectory& directory, const control::StopSignals& signals,
                      const Report& report) {
  RunTransfer& transfer = *hosts.file_transfer();
  const int requests_before = signals.count().load();
  const auto give_up = [&] { return signals.count().load() > requests_before; };
  const auto finished = transfer.finish_downloads(give_up, report);
  if (!finished.missing.empty()) {
    report({"not_home", fmt::format("the last checkpoint is not complete on this machine: {}",
                                    finished.missing)});
  }
  report({"on_hosts", finished.left});
  if (give_up()) return;
  const auto lost = [&hosts](std::size_t host) { return hosts.lost(host); };
  for (const std::string& missing :
       transfer.download_traces(run.plan, directory.path(), give_up, lost)) {
    report({"no_trace", fmt::format("no trace of a process: {}", missing)});
  }
}

// All processes are up and have loaded: from now on the run is the one that `options` describe.
void apply_changes(const control::RunDirectory& directory, const plan::RunFile& run,
                   RunHosts& hosts, const control::StopSignals& signals,
                   const LaunchOptions& options) {
  plan::protect_secrets(directory.path(), run.plan.recipe);
  // Also where a run begins again from step 0: a former start may have trained.
  control::apply_changes(directory, {options.from, plan::run_file_text(run), options.recipe});
  // The hosts last: what they still hold of later steps misleads no later resume, which does this
  // again.
  if (directory.generation() == 1 || hosts.file_transfer() == nullptr) return;
  hosts.file_transfer()->rewind(hosts.called(), options.from,
                                [&] { hosts.check_startup(signals.count()); });
}

std::unique_ptr<MemoryCheckpoints> memory_of(const plan::Plan& plan, RunHosts& hosts) {
  if (plan.recipe.checkpoint.memory_every == 0) return nullptr;
  if (hosts.file_transfer() == nullptr) return std::make_unique<LocalMemory>();
  return std::make_unique<HostMemory>(hosts.file_transfer()->agent(), plan,
                                      hosts.file_transfer()->hosts(),
                                      [&hosts](std::size_t host) { return hosts.lost(host); });
}

void collect_traces(const control::RunDirectory& directory, const plan::Plan& plan) {
  std::vector<fs::path> files;
  for (const plan::Plan::Process& process : plan.processes) {
    const fs::path file = directory.path() / control::trace_file(process.name.text());
    if (fs::exists(file)) files.push_back(file);
  }
  if (!files.empty()) trace::merge_traces(files, directory.path() / control::kTraceFile);
}

// The run has ended, and how is known: nothing that follows may change it.
void after_end(const Report& report, const char* event, const char* what,
               const std::function<void()>& work) {
  try {
    work();
  } catch (const std::exception& error) {
    report({event, fmt::format("{}: {}", what, base::describe_failure(error).text)});
  }
}

void write_reports(const control::RunDirectory& directory, const plan::Plan& plan,
                   const ModelQuestions& model, const Report& report) {
  after_end(report, "not_drawn", "no trace", [&] { collect_traces(directory, plan); });
  after_end(report, "not_drawn", "no report", [&] {
    console::write_report(directory.path(), plan.recipe.name, model.plan_text(plan));
  });
}

control::CoordinatorOptions coordination_of(const plan::RunFile& run,
                                            const control::RunDirectory& directory,
                                            std::uint32_t generation, RunHosts& hosts,
                                            StageStarter& starter, const LaunchOptions& options) {
  control::CoordinatorOptions coordination;
  coordination.from = options.from;
  coordination.to = static_cast<store::Step>(run.plan.steps);
  coordination.build = base::build_id();
  coordination.limits.forecast_step_seconds =
      std::max(run.plan.step_seconds, run.plan.first_epoch_step_seconds);
  if (run.plan.recipe.hosts.backend != recipe::BackendKind::local) {
    coordination.limits.hold = std::chrono::seconds(run.plan.recipe.hosts.hold);
  }
  coordination.survives_lost_replicas =
      run.plan.recipe.sync.on_loss == recipe::LossRule::continue_run;
  const auto requests = [&directory](control::ReplicaRequest request) {
    control::take_requests(request, directory.path());  // discards those of an earlier launch
    return [&directory, request] { return control::take_requests(request, directory.path()); };
  };
  coordination.leave_requests = requests(control::ReplicaRequest::leave);
  coordination.rejoin_requests = requests(control::ReplicaRequest::rejoin);
  coordination.start_replica = [&starter](std::uint32_t replica,
                                          const std::atomic<bool>& given_up) {
    return starter.restart_replica(replica, given_up);
  };
  coordination.locate_endpoints = [&hosts](std::map<std::string, std::string> endpoints) {
    return hosts.connect_endpoints(std::move(endpoints));
  };
  coordination.commit = [&run, &directory, &hosts, generation, codecs = options.caches.generation](
                            store::Step step, const std::vector<store::ShardFile>& files) {
    commit_step(directory, run, generation, codecs, step, files, hosts.file_transfer());
  };
  coordination.prune = [&run, &directory, &hosts](store::PruneTime time) {
    // Where checkpoints are downloaded, a finished download prunes: until then older ones are the
    // newest that are complete here.
    const bool later = hosts.file_transfer() != nullptr && time == store::PruneTime::after_commit;
    if (later) return store::Pruned{};
    const store::Part part = hosts.file_transfer() == nullptr
                                 ? store::Part::all
                                 : downloads_of(run.plan.recipe, directory).fetched;
    return store::prune_checkpoints(directory.path(), run.plan.recipe.checkpoint.keep, time, part);
  };
  return coordination;
}

}  // namespace

control::Outcome launch_run(control::RunDirectory& directory, const plan::RunFile& planned,
                            const LaunchOptions& options) {
  plan::RunFile run = planned;
  const std::uint32_t generation = directory.next_generation();
  const control::StopSignals signals;
  net::NodeOptions node_options;
  node_options.name = net::ProcessName::coordinator();
  node_options.run = run.run;
  node_options.generation = generation;
  node_options.keys = net::CurveKeyPair::generate();
  net::Node node(node_options);
  RunHosts hosts(node, run, directory, options.model, signals.count(), options.without);

  if (hosts.file_transfer() != nullptr) send_inputs(hosts, run, directory, signals, options);
  hosts.phase_ended("sent");

  StageStarter starter(run, directory, node_options, hosts, options);
  std::vector<control::WorkerHandle> workers = starter.start_all();
  hosts.phase_ended("started");

  control::RunRecorder recorder(directory, run.run.hex(), generation);
  std::vector<control::RunObserver*> observers = {&recorder};
  observers.insert(observers.end(), options.observers.begin(), options.observers.end());
  const auto report = [observers](const control::Event& event) {
    if (event.text.empty()) return;
    for (control::RunObserver* observer : observers) observer->event("the launcher", event);
  };
  HostObserver host_observer(hosts, report);
  SlowObserver slow_observer(expected_speeds(run.plan, options.model), observers);
  observers.push_back(&slow_observer);
  observers.push_back(&host_observer);
  report({"caches_dropped", options.caches.dropped});
  report({"sync_restarted", options.sync.restarted});
  report(hosts.phases());
  for (const control::Event& note : hosts.notes()) report(note);
  control::CoordinatorOptions coordination =
      coordination_of(run, directory, generation, hosts, starter, options);
  // With the facts of the hosts, which RunHosts has filled in.
  coordination.apply_changes = [&] { apply_changes(directory, run, hosts, signals, options); };
  const std::unique_ptr<MemoryCheckpoints> memory = memory_of(run.plan, hosts);
  coordination.memory = memory.get();
  control::Outcome outcome;
  // The coordinator ends all processes before checkpoints are downloaded and traces read.
  {
    control::Coordinator coordinator(std::move(workers), std::move(coordination),
                                     std::move(observers));
    outcome = coordinator.run(signals.count());
  }
  std::optional<store::Step> recovered;
  after_end(report, "lost_memory", "the checkpoint in memory cannot be used", [&] {
    // To stop at once is to wait for nothing.
    if (memory == nullptr || outcome.stopped || outcome.code == base::ExitCode::done) return;
    const int requests = signals.count().load();
    const auto give_up = [&] { return signals.count().load() > requests; };
    const auto commit = [&](store::Step step, const std::vector<store::ShardFile>& files) {
      commit_step(directory, run, generation, options.caches.generation, step, files, nullptr);
    };
    recovered = recover_from_memory(directory, *memory, {commit, give_up, report});
  });
  if (recovered) outcome.checkpoint = recovered;
  after_end(report, "not_home", "downloads from the hosts ended", [&] {
    // Older checkpoints are not worth the wait, nor are traces, which a process that failed has
    // not.
    if (recovered) return;
    if (hosts.file_transfer() != nullptr) finish_downloads(hosts, run, directory, signals, report);
  });
  write_reports(directory, run.plan, options.model, report);
  return outcome;
}

}  // namespace strait::launch

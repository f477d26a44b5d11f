#include "launcher/launch/run_launch.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "framework/net/node.h"
#include "framework/store/checkpoint.h"
#include "framework/store/store_error.h"
#include "framework/trace/merge_traces.h"
#include "launcher/base/errors.h"
#include "launcher/console/report.h"
#include "launcher/control/coordinator.h"
#include "launcher/control/loss_history.h"
#include "launcher/control/resume_changes.h"
#include "launcher/control/run_file_names.h"
#include "launcher/control/run_recorder.h"
#include "launcher/control/run_status.h"
#include "launcher/control/stop_signals.h"
#include "launcher/launch/amended_plan.h"
#include "launcher/launch/coordination.h"
#include "launcher/launch/run_hosts.h"
#include "launcher/launch/run_storage.h"
#include "launcher/launch/slow_observer.h"
#include "launcher/launch/stage_starter.h"
#include "launcher/plan/thread_limit.h"

namespace strait::launch {
namespace {

namespace fs = std::filesystem;

using Report = RunStorage::Report;

// Also reports downloads that fail.
class HostObserver : public StartObserver {
 public:
  HostObserver(RunHosts& hosts, RunStorage& storage, Report report)
      : StartObserver(hosts), storage_(storage), report_(std::move(report)) {}
  void reports(const std::vector<control::ProcessReport>& /*processes*/) override {
    for (const std::string& trouble : storage_.take_warnings())
      report_({"download_failed", trouble});
  }

 private:
  RunStorage& storage_;
  Report report_;
};

// All processes are up and have loaded: from now on the run is the one that `options` describe.
void apply_changes(const control::RunDirectory& directory, const plan::RunFile& run,
                   RunStorage& storage, const LaunchOptions& options) {
  plan::protect_secrets(directory.path(), run.plan.recipe);
  // Also where a run begins again from step 0: a former start may have trained.
  control::apply_changes(directory, {options.from, plan::run_file_text(run), options.recipe});
  // The hosts last: what they still hold of later steps misleads no later resume, which does this
  // again.
  if (directory.generation() != 1) storage.rewind(options.from);
}

// To stop at once is to wait for nothing; a stop after the step that met a failure is another one.
bool may_recover(base::ExitCode code) {
  return code != base::ExitCode::done && code != base::ExitCode::interrupted;
}

// Of a run that has begun; else UserError: plan::check_threads().
std::vector<control::Event> thread_warnings(const plan::Plan& plan, bool has_begun) {
  std::vector<control::Event> warnings;
  for (std::size_t host = 0; host < plan.hosts.size(); ++host) {
    if (!has_begun) plan::check_threads(plan, host);
    warnings.push_back({"threads", plan::thread_warning(plan, host)});
  }
  return warnings;
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
  after_end(report, "report_failed", "no trace", [&] { collect_traces(directory, plan); });
  after_end(report, "report_failed", "no report", [&] {
    console::write_report(directory.path(), plan.recipe.name, model.plan_text(plan));
  });
}

store::Manifest manifest_of(const plan::RunFile& run, std::uint32_t generation,
                            const LaunchOptions& options, store::Step step,
                            const std::vector<store::ShardFile>& files) {
  store::Manifest manifest = plan::manifest_for(run, generation, step);
  manifest.codec_generation = options.caches.generation;
  manifest.files = files;
  plan::mark_missing_replicas(manifest, run.plan);
  return manifest;
}

// After a failure: makes the newest checkpoint in memory one on this machine's disk. Its step;
// nullopt: there is none that is newer than those on disk.
std::optional<store::Step> save_from_memory(
    const control::RunDirectory& directory, MemoryCheckpoints& memory,
    const control::LossHistory& losses,
    const std::function<store::Manifest(store::Step, const std::vector<store::ShardFile>&)>&
        manifest,
    const std::atomic<int>& stops, const Report& report) {
  std::optional<store::Step> saved;
  after_end(report, "lost_memory", "the checkpoint in memory cannot be used", [&] {
    const auto give_up = [&stops, before = stops.load()] { return stops.load() > before; };
    const auto commit = [&](store::Step step, const std::vector<store::ShardFile>& files) {
      store::commit_checkpoint(store::checkpoint_directory(directory.path(), step),
                               manifest(step, files));
    };
    saved = recover_from_memory(directory, memory, {losses, commit, give_up, report});
  });
  return saved;
}

control::CoordinatorOptions training_coordination(const plan::RunFile& run,
                                                  const control::RunDirectory& directory,
                                                  std::uint32_t generation, RunHosts& hosts,
                                                  RunStorage& storage, StageStarter& starter,
                                                  const LaunchOptions& options) {
  control::CoordinatorOptions coordination = base_coordination(run, hosts);
  coordination.from = options.from;
  coordination.to = static_cast<store::Step>(run.plan.steps);
  coordination.limits.forecast_step_seconds =
      std::max(run.plan.step_seconds, run.plan.first_epoch_step_seconds);
  coordination.survives_lost_replicas =
      run.plan.recipe.sync.on_loss == recipe::LossRule::continue_run;
  coordination.directory_in_place = [&directory] { return directory.in_place(); };
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
  coordination.commit = [&, generation](store::Step step,
                                        const std::vector<store::ShardFile>& files) {
    storage.commit(manifest_of(run, generation, options, step, files));
  };
  coordination.losses = control::read_losses(directory.path(), options.model.guess_loss(run.plan));
  coordination.losses.go_back(options.from);
  coordination.prune = [&storage](store::PruneTime time) { return storage.prune(time); };
  return coordination;
}

// Null: the recipe has none, or this machine has no room for any.
std::unique_ptr<MemoryCheckpoints> memory_of(RunStorage& storage, const plan::Plan& plan,
                                             const Report& report) {
  if (plan.recipe.checkpoint.memory_every == 0) return nullptr;
  try {
    return storage.memory();
  } catch (const store::StoreError& error) {
    report({"not_in_memory", fmt::format("there are no checkpoints in memory: {}", error.what())});
    return nullptr;
  }
}

// What removes checkpoints asks them.
void pass_on_losses(const control::LossHistory& losses, RunStorage& storage,
                    MemoryCheckpoints* memory) {
  if (losses.good()) storage.known_good(*losses.good());
  if (memory != nullptr) memory->judge(losses);
}

}  // namespace

control::Outcome launch_run(control::RunDirectory& directory, const plan::RunFile& planned,
                            const LaunchOptions& options) {
  plan::RunFile run = planned;
  const std::uint32_t generation = directory.next_generation();
  const control::StopSignals signals;
  const net::NodeOptions node_options = launcher_node(run.run, generation);
  net::Node node(node_options);
  if (run.plan.recipe.hosts.backend == recipe::BackendKind::local) amend_by_this_machine(run.plan);
  RunHosts hosts(node, run, directory, options.model, signals.count(), options.without);
  const std::vector<control::Event> warnings = thread_warnings(run.plan, !options.resume.empty());

  const std::unique_ptr<RunStorage> storage =
      storage_of(hosts, run, directory.path(), signals.count());
  storage->send_inputs(options.resume, store::Part::all,
                       control::launcher_events(options.observers));
  storage->start_downloads();
  hosts.phase_ended("files sent");

  StageStarter starter(run, directory, node_options, hosts, options);
  std::vector<control::WorkerHandle> workers = starter.start_all();
  hosts.phase_ended("stages started");

  control::RunRecorder recorder(directory, run.run.hex(), generation, options.from,
                                static_cast<store::Step>(run.plan.steps));
  std::vector<control::RunObserver*> observers = {&recorder};
  observers.insert(observers.end(), options.observers.begin(), options.observers.end());
  const Report report = control::launcher_events(observers);
  HostObserver host_observer(hosts, *storage, report);
  SlowObserver slow_observer(run.plan, options.model, observers);
  observers.push_back(&slow_observer);
  observers.push_back(&host_observer);
  report({"caches_dropped", options.caches.dropped});
  report({"sync_restarted", options.sync.restarted});
  report(hosts.phases());
  for (const control::Event& note : hosts.notes()) report(note);
  for (const control::Event& warning : warnings) report(warning);
  control::CoordinatorOptions coordination =
      training_coordination(run, directory, generation, hosts, *storage, starter, options);
  // With the facts of the hosts, which RunHosts has filled in.
  coordination.apply_changes = [&] { apply_changes(directory, run, *storage, options); };
  const std::unique_ptr<MemoryCheckpoints> memory = memory_of(*storage, run.plan, report);
  coordination.memory = memory.get();
  control::LossHistory losses;
  coordination.on_loss = [&](const control::LossHistory& now) {
    losses = now;
    pass_on_losses(now, *storage, memory.get());
  };
  // The coordinator ends all processes before checkpoints are downloaded and traces read.
  control::Outcome outcome =
      control::Coordinator(std::move(workers), std::move(coordination), std::move(observers))
          .run(signals.count());
  // Nothing more is written where another run may be.
  if (!directory.in_place()) return outcome;
  std::optional<store::Step> recovered;
  if (memory != nullptr && may_recover(outcome.code)) {
    const auto manifest = [&](store::Step step, const std::vector<store::ShardFile>& files) {
      return manifest_of(run, generation, options, step, files);
    };
    recovered = save_from_memory(directory, *memory, losses, manifest, signals.count(), report);
    if (recovered) outcome.checkpoint = recovered;
  }
  after_end(report, "download_failed", "downloads from the hosts ended", [&] {
    // Older checkpoints are not worth the wait, nor are traces: a process that failed has none.
    if (!recovered) storage->finish(report);
  });
  write_reports(directory, run.plan, options.model, report);
  return outcome;
}

}  // namespace strait::launch

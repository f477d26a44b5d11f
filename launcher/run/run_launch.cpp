#include "launcher/run/run_launch.h"

#include <spdlog/spdlog.h>
#include <sys/resource.h>

#include "framework/trace/merge_traces.h"
#include "launcher/base/own_program.h"
#include "launcher/base/stop_signals.h"
#include "launcher/run/amended_plan.h"
#include "launcher/run/coordinator.h"
#include "launcher/run/loss_history.h"
#include "launcher/run/run_hosts.h"
#include "launcher/run/run_recorder.h"
#include "launcher/run/run_status.h"
#include "launcher/run/run_storage.h"
#include "launcher/run/slow_parts.h"
#include "launcher/run/stage_starter.h"

namespace strait::run {
namespace {

namespace fs = std::filesystem;

using Report = RunStorage::Report;

// The options of the coordinator that training and inference share.
CoordinatorOptions base_coordination(const plan::RunFile& run, RunHosts& hosts) {
  CoordinatorOptions coordination;
  coordination.build = base::build_id();
  if (run.plan.recipe.hosts.backend != recipe::BackendKind::local) {
    coordination.limits.hold = std::chrono::seconds(run.plan.recipe.hosts.hold);
  }
  coordination.locate_endpoints = [&hosts](std::map<std::string, std::string> endpoints) {
    return hosts.connect_endpoints(std::move(endpoints));
  };
  return coordination;
}

// Tolerates silent hosts once all processes have loaded.
class StartObserver : public RunObserver {
 public:
  explicit StartObserver(RunHosts& hosts) : hosts_(hosts) {}
  void training(store::Step /*from*/, store::Step /*to*/) override { hosts_.tolerate_outages(); }

 private:
  RunHosts& hosts_;
};

// StartObserver that also reports downloads that fail.
class HostObserver : public StartObserver {
 public:
  HostObserver(RunHosts& hosts, RunStorage& storage, Report report)
      : StartObserver(hosts), storage_(storage), report_(std::move(report)) {}
  void reports(const std::vector<ProcessReport>& /*processes*/) override {
    for (const std::string& warning : storage_.take_warnings())
      report_({"download_failed", warning});
  }

 private:
  RunStorage& storage_;
  Report report_;
};

// Called once all processes have loaded: from now on the run follows `options`.
void apply_changes(const RunDirectory& directory, const plan::RunFile& run, RunStorage& storage,
                   const LaunchOptions& options) {
  plan::protect_secrets(directory.path(), run.plan.recipe);
  // Also if the run begins again from step 0: a former start may have trained.
  run::apply_changes(directory, {options.from, plan::run_file_text(run), options.recipe});
  // The hosts come last. If this fails, later checkpoints stay on hosts, but the next resume sets
  // them aside before it starts.
  if (directory.generation() != 1) storage.rewind(options.from);
}

// A user who stops at once does not wait for a recovery.
bool may_recover(base::ExitCode code) {
  return code != base::ExitCode::done && code != base::ExitCode::interrupted;
}

// Too many threads: a warning for a run that has begun; otherwise UserError.
std::vector<Event> thread_warnings(const plan::Plan& plan, bool has_begun) {
  std::vector<Event> warnings;
  for (std::size_t host = 0; host < plan.hosts.size(); ++host) {
    if (!has_begun) plan::check_threads(plan, host);
    warnings.push_back({"threads", plan::thread_warning(plan, host)});
  }
  return warnings;
}

// For work after the end of the run: its errors do not change how the run ended.
void after_end(const Report& report, const char* event, const char* what,
               const std::function<void()>& work) {
  try {
    work();
  } catch (const std::exception& error) {
    report({event, fmt::format("{}: {}", what, base::describe_failure(error).text)});
  }
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

CoordinatorOptions training_coordination(const plan::RunFile& run, const RunDirectory& directory,
                                         RunHosts& hosts, RunStorage& storage,
                                         StageStarter& starter, LossHistory so_far,
                                         const LaunchOptions& options) {
  CoordinatorOptions coordination = base_coordination(run, hosts);
  coordination.from = options.from;
  coordination.to = static_cast<store::Step>(run.plan.steps);
  coordination.limits.forecast_step_seconds =
      std::max(run.plan.step_seconds, run.plan.first_epoch_step_seconds);
  coordination.survives_lost_replicas =
      run.plan.recipe.sync.on_loss == recipe::LossRule::continue_run;
  coordination.directory_in_place = [&directory] { return directory.in_place(); };
  const auto requests = [&directory](ReplicaRequest request) {
    take_requests(request, directory.path());  // discards requests to an earlier launch
    return [&directory, request] { return take_requests(request, directory.path()); };
  };
  coordination.leave_requests = requests(ReplicaRequest::leave);
  coordination.rejoin_requests = requests(ReplicaRequest::rejoin);
  coordination.start_replica = [&starter](std::uint32_t replica,
                                          const std::atomic<bool>& given_up) {
    return starter.restart_replica(replica, given_up);
  };
  coordination.commit = [&storage](store::Step step, const std::vector<store::ShardFile>& files) {
    storage.commit(step, files);
  };
  coordination.on_loss = [&storage](const LossHistory& losses) { storage.judge(losses); };
  coordination.losses = std::move(so_far);
  coordination.stop_when = run.plan.recipe.train.stop_when;
  coordination.prune = [&storage](store::PruneTime time) { return storage.prune(time); };
  return coordination;
}

CoordinatorOptions inference_coordination(const plan::RunFile& run, RunHosts& hosts,
                                          const LaunchOptions& options) {
  CoordinatorOptions coordination = base_coordination(run, hosts);
  coordination.from = coordination.to = options.from;
  coordination.limits.standstill = std::chrono::seconds(0);  // it waits for prompts
  coordination.inference = options.inference;
  return coordination;
}

// `some`: also where a process has written none, as one that failed.
void collect_traces(const RunDirectory& directory, const plan::Plan& plan, bool some) {
  std::vector<fs::path> files;
  for (const plan::Plan::Process& process : plan.processes) {
    const fs::path file = directory.path() / base::trace_file(process.name.text());
    if (fs::exists(file)) files.push_back(file);
  }
  if (files.empty() || (!some && files.size() < plan.processes.size())) return;
  trace::merge_traces(files, directory.path() / base::kTraceFile);
}

// Writes the report of a run: after checkpoints, on a thread of its own with the lowest priority,
// and at the end. If checkpoints come while it writes or rests, one more report follows.
class RunReports final : public RunObserver {
 public:
  // `directory`, `storage` and `model` outlive it.
  RunReports(const RunDirectory& directory, plan::Plan plan, RunStorage& storage,
             const ModelQuestions& model);
  ~RunReports() override { stop(); }

  void checkpointed(store::Step step) override;
  void stop();  // waits for the report that it writes; before RunStorage::finish()

  // After stop(): merges the traces of all processes and writes the last report. Returns what went
  // wrong, which does not change how the run ended.
  std::vector<Event> finish() { return write(/*ended=*/true); }

 private:
  std::vector<Event> write(bool ended);
  void write_reports();

  const RunDirectory& directory_;
  const plan::Plan plan_;
  RunStorage& storage_;
  const ModelQuestions& model_;
  Mutex mutex_;
  Condition changed_;
  bool wanted_ STRAIT_GUARDED_BY(mutex_) = false;
  std::atomic<bool> ending_ = false;  // changes under mutex_
  std::thread thread_;                // last: it uses all members above
};

RunReports::RunReports(const RunDirectory& directory, plan::Plan plan, RunStorage& storage,
                       const ModelQuestions& model)
    : directory_(directory), plan_(std::move(plan)), storage_(storage), model_(model) {
  // Of an earlier start: a step that is shown has all its processes of one start.
  for (const plan::Plan::Process& process : plan_.processes) {
    std::error_code absent;
    fs::remove(directory_.path() / base::trace_file(process.name.text()), absent);
  }
  thread_ = std::thread([this] { write_reports(); });
}

void RunReports::stop() {
  {
    const MutexLock lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void RunReports::checkpointed(store::Step /*step*/) {
  {
    const MutexLock lock(mutex_);
    wanted_ = true;
  }
  changed_.notify_all();
}

void RunReports::write_reports() {
  // Of this thread only. Processes that train may need all cores of this machine.
  constexpr int kLowest = 19;
  ::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), kLowest);
  // Checkpoints may come every second: reports take at most a hundredth of the time.
  constexpr int kRest = 100;
  auto rests_until = std::chrono::steady_clock::now();
  while (true) {
    {
      const MutexLock lock(mutex_);
      while (!wanted_ && !ending_) changed_.wait(mutex_);
      while (!ending_ && changed_.wait_until(mutex_, rests_until)) continue;
      if (ending_) return;
      wanted_ = false;
    }
    // Another run may be in the directory now.
    if (!directory_.in_place()) continue;
    // What is missing comes with the next report.
    storage_.download_traces(plan_, [this] { return ending_.load(); });
    const auto began = std::chrono::steady_clock::now();
    for (const Event& failure : write(/*ended=*/false)) spdlog::warn("{}", failure.text);
    rests_until = began + kRest * (std::chrono::steady_clock::now() - began);
  }
}

std::vector<Event> RunReports::write(bool ended) {
  std::vector<Event> failures;
  const auto attempt = [&failures](const char* what, const std::function<void()>& work) {
    try {
      work();
    } catch (const std::exception& error) {
      failures.push_back(
          {"report_failed", fmt::format("{}: {}", what, base::describe_failure(error).text)});
    }
  };
  attempt("no trace", [&] { collect_traces(directory_, plan_, ended); });
  attempt("no report", [this] { model_.write_report(directory_.path(), plan_); });
  return failures;
}

}  // namespace

Outcome launch_run(RunDirectory& directory, const plan::RunFile& planned,
                   const LaunchOptions& options) {
  plan::RunFile run = planned;
  const std::uint32_t generation = directory.next_generation();
  const base::StopSignals signals;
  const net::NodeOptions node_options = launcher_node(run.run, generation);
  net::Node node(node_options);
  if (run.plan.recipe.hosts.backend == recipe::BackendKind::local) amend_by_this_machine(run.plan);
  RunHosts hosts(node, run, directory, options.model, signals.count(), options.rendezvous,
                 options.without);
  const std::vector<Event> warnings = thread_warnings(run.plan, !options.resume.empty());

  RunStorage storage(hosts, run, directory, signals.count());
  storage.send_inputs(options.resume, store::Part::all, launcher_events(options.observers));
  storage.start_checkpoints([&](store::Step step, const std::vector<store::ShardFile>& files) {
    return manifest_of(run, generation, options, step, files);
  });
  hosts.phase_ended("files sent");

  LossHistory losses = read_losses(directory.path(), options.model.guess_loss(run.plan));
  losses.go_back(options.from);
  StageStarter starter(run, directory, node_options, hosts, options,
                       losses.early_stop(run.plan.recipe.train.stop_when).state());
  std::vector<WorkerHandle> workers = starter.start_all();
  hosts.phase_ended("stages started");

  RunRecorder recorder(directory, run.run.hex(), generation, options.from,
                       static_cast<store::Step>(run.plan.steps));
  std::vector<RunObserver*> observers = {&recorder};
  observers.insert(observers.end(), options.observers.begin(), options.observers.end());
  const Report report = launcher_events(observers);
  HostObserver host_observer(hosts, storage, report);
  SlowObserver slow_observer(run.plan, options.model, observers);
  RunReports reports(directory, run.plan, storage, options.model);
  observers.insert(observers.end(), {&slow_observer, &host_observer, &reports});
  report({"caches_dropped", options.caches.dropped});
  report({"sync_restarted", options.sync.restarted});
  report(hosts.phases());
  for (const Event& note : hosts.notes()) report(note);
  for (const Event& warning : warnings) report(warning);
  CoordinatorOptions coordination =
      training_coordination(run, directory, hosts, storage, starter, std::move(losses), options);
  if (options.starting) options.starting(run);
  coordination.end_requests = options.end_requests;
  // After RunHosts, which writes facts of the hosts into `run`.
  coordination.apply_changes = [&] { apply_changes(directory, run, storage, options); };
  coordination.memory = storage.hold_in_memory(report);
  // The coordinator ends all processes before checkpoints are downloaded and traces read.
  Outcome outcome = Coordinator(std::move(workers), std::move(coordination), std::move(observers))
                        .run(signals.count());
  reports.stop();
  // Another run may be in the directory now: write nothing more there.
  if (!directory.in_place()) return outcome;
  std::optional<store::Step> recovered;
  if (may_recover(outcome.code)) {
    after_end(report, "lost_memory", "the checkpoint in memory cannot be used",
              [&] { recovered = storage.save_from_memory(report); });
    if (recovered) outcome.checkpoint = recovered;
  }
  after_end(report, "download_failed", "downloads from the hosts ended", [&] {
    // Older checkpoints are not needed any more, and a process that failed has no trace.
    if (!recovered) storage.finish(report);
  });
  for (const Event& failure : reports.finish()) report(failure);
  return outcome;
}

Outcome launch_inference(RunDirectory& directory, const plan::RunFile& planned,
                         const LaunchOptions& options) {
  plan::RunFile run = planned;
  const base::StopSignals signals;
  const net::NodeOptions node_options = launcher_node(run.run, directory.next_generation());
  net::Node node(node_options);
  RunHosts hosts(node, run, directory, options.model, signals.count(), options.rendezvous);
  RunStorage(hosts, run, directory, signals.count())
      .send_inputs(options.resume, store::Part::weights, launcher_events(options.observers));
  StageStarter starter(run, directory, node_options, hosts, options);
  std::vector<WorkerHandle> workers = starter.start_all();
  StartObserver start(hosts);
  std::vector<RunObserver*> observers = options.observers;
  observers.push_back(&start);
  Coordinator coordinator(std::move(workers), inference_coordination(run, hosts, options),
                          std::move(observers));
  return coordinator.run(signals.count());
}

}  // namespace strait::run

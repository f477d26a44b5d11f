#include "launcher/run/run_launch.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "framework/net/node.h"
#include "framework/store/checkpoint.h"
#include "framework/store/store_error.h"
#include "launcher/base/errors.h"
#include "launcher/base/stop_signals.h"
#include "launcher/plan/speeds.h"
#include "launcher/plan/thread_limit.h"
#include "launcher/run/amended_plan.h"
#include "launcher/run/coordination.h"
#include "launcher/run/coordinator.h"
#include "launcher/run/loss_history.h"
#include "launcher/run/resume_changes.h"
#include "launcher/run/run_hosts.h"
#include "launcher/run/run_recorder.h"
#include "launcher/run/run_reports.h"
#include "launcher/run/run_status.h"
#include "launcher/run/run_storage.h"
#include "launcher/run/slow_parts.h"
#include "launcher/run/slow_steps.h"
#include "launcher/run/stage_starter.h"

namespace strait::run {
namespace {

namespace fs = std::filesystem;

using Report = RunStorage::Report;

// Also reports downloads that fail.
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

bool knows_speed(const plan::Plan& plan, const plan::PathSpeed& speed) {
  const recipe::Recipe::Hosts& hosts = plan.recipe.hosts;
  const bool simulated = hosts.simulate_link.empty() && hosts.simulate.bits_per_second > 0;
  return speed.measured || simulated || hosts.link_megabits.has_value();
}

std::map<net::ProcessName, SlowSteps::Host> hosts_of_processes(const plan::Plan& plan) {
  std::map<net::ProcessName, SlowSteps::Host> hosts;
  for (const plan::Plan::Process& process : plan.processes) {
    hosts[process.name] = {process.host, plan.hosts.at(process.host_index).cores};
  }
  return hosts;
}

// The speed expected of the bytes that `sender` sends. Links within a host and simulated links have
// no host names, so they are reported by their own names.
ExpectedSpeeds::Link expected_link(const plan::Plan& plan, net::ProcessName sender,
                                   net::ProcessName receiver, const plan::Plan::Link& link) {
  ExpectedSpeeds::Link expected;
  const std::size_t from = plan.process(sender).host_index;
  const std::size_t to = plan.process(receiver).host_index;
  if (from != to) {
    expected.from = plan.hosts.at(from).name;
    expected.to = plan.hosts.at(to).name;
  }
  const plan::PathSpeed speed = plan::path_speed(plan, from, to);
  if (!knows_speed(plan, speed)) return expected;
  // Each message of a boundary may wait for an answer; a round of replicas has a few messages.
  constexpr std::int64_t kTripsOfRound = 4;
  const std::int64_t trips =
      link.use == plan::Plan::Use::boundary ? plan.micro_batches : kTripsOfRound;
  const double round_trip = speed.seconds + plan::path_speed(plan, to, from).seconds;
  expected.bytes_per_second = speed.bytes_per_second;
  expected.waiting = static_cast<double>(trips) * round_trip;
  return expected;
}

// The speeds that the plan expects of processes, and of the links whose speed is known: measured,
// simulated, or stated in the recipe.
ExpectedSpeeds expected_speeds(const plan::Plan& plan, const ModelQuestions& model) {
  ExpectedSpeeds expected;
  const std::map<net::ProcessName, double> seconds = model.compute_seconds(plan);
  for (const plan::Plan::Process& process : plan.processes) {
    const bool measured = plan::compute_speed(plan, process).measured;
    expected.processes[process.name] = {seconds.at(process.name), measured, process.host};
  }
  for (const plan::Plan::Link& link : plan.links) {
    expected.links[{link.name, link.connects}] =
        expected_link(plan, link.connects, link.listens, link);
    expected.links[{link.name, link.listens}] =
        expected_link(plan, link.listens, link.connects, link);
  }
  return expected;
}

// Tells the other observers of a run which links and processes (SlowParts) and which steps
// (SlowSteps) are slow.
class SlowObserver : public RunObserver {
 public:
  SlowObserver(const plan::Plan& plan, const ModelQuestions& model,
               std::vector<RunObserver*> observers)
      : slow_(expected_speeds(plan, model)),
        slow_steps_(hosts_of_processes(plan)),
        observers_(std::move(observers)) {}

  void step(const StepLine& line) override {
    observers_.launcher_event({"slow", slow_steps_.add(line)});
    const std::vector<SlowParts::Change> changes = slow_.add(line);
    if (changes.empty()) return;
    for (const auto& change : changes) {
      observers_.launcher_event({change.slow ? "slow" : "not_slow", change.sentence});
    }
    observers_.notify(&RunObserver::slow_parts, slow_.sentences());
  }

 private:
  SlowParts slow_;
  SlowSteps slow_steps_;
  const RunObservers observers_;
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

// After a failure: writes the newest checkpoint in memory to this machine's disk. Returns its step;
// nullopt: none is newer than the checkpoints on disk.
std::optional<store::Step> save_from_memory(
    const RunDirectory& directory, MemoryCheckpoints& memory, const LossHistory& losses,
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

CoordinatorOptions training_coordination(const plan::RunFile& run, const RunDirectory& directory,
                                         std::uint32_t generation, RunHosts& hosts,
                                         RunStorage& storage, StageStarter& starter,
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
    take_requests(request, directory.path());  // discards those of an earlier launch
    return [&directory, request] { return take_requests(request, directory.path()); };
  };
  coordination.leave_requests = requests(ReplicaRequest::leave);
  coordination.rejoin_requests = requests(ReplicaRequest::rejoin);
  coordination.start_replica = [&starter](std::uint32_t replica,
                                          const std::atomic<bool>& given_up) {
    return starter.restart_replica(replica, given_up);
  };
  coordination.commit = [&, generation](store::Step step,
                                        const std::vector<store::ShardFile>& files) {
    storage.commit(manifest_of(run, generation, options, step, files));
  };
  coordination.losses = read_losses(directory.path(), options.model.guess_loss(run.plan));
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

// Pruning depends on the losses: the last checkpoint with a good loss is kept.
void pass_on_losses(const LossHistory& losses, RunStorage& storage, MemoryCheckpoints* memory) {
  if (losses.good()) storage.known_good(*losses.good());
  if (memory != nullptr) memory->judge(losses);
}

CoordinatorOptions inference_coordination(const plan::RunFile& run, RunHosts& hosts,
                                          const LaunchOptions& options) {
  CoordinatorOptions coordination = base_coordination(run, hosts);
  coordination.from = coordination.to = options.from;
  coordination.limits.standstill = std::chrono::seconds(0);  // it waits for prompts
  coordination.inference = options.inference;
  return coordination;
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

  const std::unique_ptr<RunStorage> storage =
      storage_of(hosts, run, directory.path(), signals.count());
  storage->send_inputs(options.resume, store::Part::all, launcher_events(options.observers));
  storage->start_downloads();
  hosts.phase_ended("files sent");

  StageStarter starter(run, directory, node_options, hosts, options);
  std::vector<WorkerHandle> workers = starter.start_all();
  hosts.phase_ended("stages started");

  RunRecorder recorder(directory, run.run.hex(), generation, options.from,
                       static_cast<store::Step>(run.plan.steps));
  std::vector<RunObserver*> observers = {&recorder};
  observers.insert(observers.end(), options.observers.begin(), options.observers.end());
  const Report report = launcher_events(observers);
  HostObserver host_observer(hosts, *storage, report);
  SlowObserver slow_observer(run.plan, options.model, observers);
  RunReports reports(directory, run.plan, options.model);
  observers.insert(observers.end(), {&slow_observer, &host_observer, &reports});
  report({"caches_dropped", options.caches.dropped});
  report({"sync_restarted", options.sync.restarted});
  report(hosts.phases());
  for (const Event& note : hosts.notes()) report(note);
  for (const Event& warning : warnings) report(warning);
  CoordinatorOptions coordination =
      training_coordination(run, directory, generation, hosts, *storage, starter, options);
  if (options.starting) options.starting(run);
  coordination.end_requests = options.end_requests;
  // After RunHosts, which writes facts of the hosts into `run`.
  coordination.apply_changes = [&] { apply_changes(directory, run, *storage, options); };
  const std::unique_ptr<MemoryCheckpoints> memory = memory_of(*storage, run.plan, report);
  coordination.memory = memory.get();
  LossHistory losses;
  coordination.on_loss = [&](const LossHistory& now) {
    losses = now;
    pass_on_losses(now, *storage, memory.get());
  };
  // The coordinator ends all processes before checkpoints are downloaded and traces read.
  Outcome outcome = Coordinator(std::move(workers), std::move(coordination), std::move(observers))
                        .run(signals.count());
  // Another run may be in the directory now: write nothing more there.
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
    // Older checkpoints are not needed any more, and a process that failed has no trace.
    if (!recovered) storage->finish(report);
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
  storage_of(hosts, run, directory.path(), signals.count())
      ->send_inputs(options.resume, store::Part::weights, launcher_events(options.observers));
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

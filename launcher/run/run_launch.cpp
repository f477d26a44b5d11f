#include "launcher/run/run_launch.h"

#include <fmt/format.h>

#include <map>
#include <memory>
#include <utility>

#include "framework/net/node.h"
#include "framework/store/checkpoint.h"
#include "framework/store/store_error.h"
#include "framework/trace/merge_traces.h"
#include "launcher/build_id.h"
#include "launcher/control/coordinator.h"
#include "launcher/control/stop_signals.h"
#include "launcher/process/local_backend.h"
#include "launcher/run/report.h"
#include "launcher/run/run_recorder.h"
#include "launcher/stage/stage_job.h"

namespace strait::launcher {
namespace {

namespace fs = std::filesystem;

using Keys = std::map<net::ProcessName, net::CurveKeyPair>;

Keys make_keys(const Plan& plan) {
  Keys keys;
  for (const Plan::Process& process : plan.processes) {
    keys.emplace(process.name, net::CurveKeyPair::generate());
  }
  return keys;
}

// The stage program stands beside this one.
fs::path stage_program() {
  return fs::read_symlink("/proc/self/exe").parent_path() / "strait-stage";
}

StageJob job_for(const RunFile& run, const RunDirectory& directory, const Keys& keys,
                 net::ProcessName process) {
  StageJob job;
  job.plan = run.plan;
  job.process = process;
  job.run = run.run;
  job.keys = keys.at(process);
  for (const auto& [peer, pair] : keys) job.peer_keys[peer.text()] = pair.public_key;
  job.run_directory = fs::absolute(directory.path()).string();
  return job;
}

net::LinkOptions control_options(net::ProcessName process, const Keys& keys) {
  net::LinkOptions options;
  options.name = "control " + process.text();
  options.peer = process;
  options.peer_public_key = keys.at(process).public_key;
  options.terms = {{"build", build_id()}};
  return options;
}

// Makes a checkpoint exist once all shards are there, and lets go of the oldest ones.
void commit_step(const RunDirectory& directory, const RunFile& run, std::uint32_t generation,
                 std::int64_t codec_generation, store::Step step,
                 const std::vector<store::ShardFile>& files) {
  store::Manifest manifest = manifest_for(run, generation, step);
  manifest.codec_generation = codec_generation;
  manifest.files = files;
  store::commit_checkpoint(store::checkpoint_directory(directory.path(), step), manifest);
  store::prune_checkpoints(directory.path(), run.plan.recipe.checkpoint.keep);
}

void collect_traces(const RunDirectory& directory, const Plan& plan) {
  std::vector<fs::path> files;
  for (const Plan::Process& process : plan.processes) {
    const fs::path file = directory.path() / "logs" / (process.name.text() + ".trace.json");
    if (fs::exists(file)) files.push_back(file);
  }
  if (!files.empty()) trace::merge_traces(files, directory.path() / "trace.json");
}

// What is drawn from a run must not change how it ended.
void draw(const RunDirectory& directory, const Plan& plan, Outcome& outcome) {
  const auto note = [&outcome](const std::exception& error) {
    outcome.followers.push_back(fmt::format("no trace or report: {}", error.what()));
  };
  try {
    collect_traces(directory, plan);
    write_report(directory.path(), plan);
  } catch (const store::StoreError& error) {
    note(error);
  } catch (const trace::TraceError& error) {
    note(error);
  }
}

}  // namespace

Outcome launch_run(RunDirectory& directory, const RunFile& run, const LaunchOptions& options) {
  const std::uint32_t generation = directory.next_generation();
  const StopSignals signals;
  const net::CurveKeyPair own_keys = net::CurveKeyPair::generate();
  const Keys keys = make_keys(run.plan);

  net::NodeOptions node_options;
  node_options.name = net::ProcessName::coordinator();
  node_options.run = run.run;
  node_options.generation = generation;
  node_options.keys = own_keys;
  net::Node node(node_options);
  const std::unique_ptr<net::Listener> listener = node.listen({});

  LocalBackend backend;
  std::vector<Station> stations;
  for (const Plan::Process& process : run.plan.processes) {
    StageJob job = job_for(run, directory, keys, process.name);
    job.generation = generation;
    job.coordinator_endpoint = listener->endpoint();
    job.coordinator_key = own_keys.public_key;
    job.resume = options.resume;
    job.resume_caches = options.caches.restore;
    job.resume_exact = options.sync.exact;
    job.codec_generation = options.caches.generation;
    Station station;
    station.name = process.name;
    station.link = listener->expect(control_options(process.name, keys));
    station.process = backend.start(Launch{process.name.describe(),
                                           {stage_program().string()},
                                           to_text(job),
                                           directory.log(process.name.text())});
    stations.push_back(std::move(station));
  }

  RunRecorder recorder(directory, run.run.hex(), generation);
  std::vector<RunObserver*> observers = {&recorder};
  observers.insert(observers.end(), options.observers.begin(), options.observers.end());
  for (const Event& event : {Event{"caches_dropped", options.caches.dropped},
                             Event{"sync_restarted", options.sync.restarted}}) {
    if (event.text.empty()) continue;
    for (RunObserver* observer : observers) observer->event("the launcher", event);
  }
  CoordinatorOptions coordination;
  coordination.from = options.from;
  coordination.to = static_cast<store::Step>(run.plan.steps);
  coordination.build = build_id();
  coordination.commit = [&](store::Step step, const std::vector<store::ShardFile>& files) {
    commit_step(directory, run, generation, options.caches.generation, step, files);
  };
  Outcome outcome;
  {
    Coordinator coordinator(std::move(stations), std::move(coordination), std::move(observers));
    outcome = coordinator.run(signals.count());
  }
  draw(directory, run.plan, outcome);
  return outcome;
}

}  // namespace strait::launcher

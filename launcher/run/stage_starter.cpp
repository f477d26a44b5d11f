#include "launcher/run/stage_starter.h"

#include "launcher/base/launcher_links.h"
#include "launcher/base/own_program.h"

namespace strait::run {
namespace {

// The stage program is in the folder of this program.
std::filesystem::path stage_program() { return base::own_program().parent_path() / "strait-stage"; }

}  // namespace

StageStarter::StageStarter(const plan::RunFile& run, const RunDirectory& directory,
                           const net::NodeOptions& node, RunHosts& hosts,
                           const LaunchOptions& options, trace::EarlyStop::State early_stop)
    : run_(run),
      directory_(directory),
      node_(node),
      hosts_(hosts),
      options_(options),
      early_stop_(early_stop) {}

std::vector<WorkerHandle> StageStarter::start_all() {
  std::vector<net::ProcessName> present;
  std::vector<WorkerHandle> absent;
  for (const plan::Plan::Process& process : run_.plan.processes) {
    if (!options_.without.contains(process.name.replica)) {
      present.push_back(process.name);
      continue;
    }
    absent.emplace_back().name = process.name;
    // A placeholder that no process gets; the replica gets other keys when it joins.
    keys_.insert_or_assign(process.name, net::CurveKeyPair::generate());
  }
  std::vector<WorkerHandle> workers = start(present, false);
  std::ranges::move(absent, std::back_inserter(workers));
  return workers;
}

StartedReplica StageStarter::restart_replica(std::uint32_t replica,
                                             const std::atomic<bool>& given_up) {
  const std::vector<store::Step> saved = store::committed_steps(directory_.path());
  StartedReplica result;
  const auto check = [&given_up] {
    if (given_up)
      throw base::UserError(base::ExitCode::interrupted, "the run no longer needs the replica");
  };
  result.notes =
      hosts_.rejoin_hosts(run_, replica, saved.empty() ? store::Step{0} : saved.front(), check);
  std::vector<net::ProcessName> processes;
  for (const plan::Plan::Process& process : run_.plan.processes) {
    if (process.name.replica == replica) processes.push_back(process.name);
  }
  for (std::size_t i = 0; i < run_.plan.links.size(); ++i) {
    const plan::Plan::Link& link = run_.plan.links[i];
    const hosts::LinkRoute& route = hosts_.routes().at(i);
    const bool concerned = link.listens.replica == replica || link.connects.replica == replica;
    if (concerned && !route.address.empty()) result.binds[route.binds][link.name] = route.address;
  }
  result.workers = start(processes, true);
  return result;
}

plan::StageJob StageStarter::job_for(net::ProcessName process, std::size_t host, bool joins) const {
  plan::StageJob job;
  job.plan = run_.plan;
  job.process = process;
  job.run = run_.run;
  job.plugins = plan::plugin_copies(run_.plan.recipe.plugins);
  job.keys = keys_.at(process);
  for (const auto& [peer, pair] : keys_) job.peer_keys[peer.text()] = pair.public_key;
  job.generation = node_.generation;
  job.coordinator_key = node_.keys.public_key;
  job.resume = options_.resume;
  job.resume_caches = options_.caches.restore;
  job.resume_exact = options_.sync.exact;
  job.codec_generation = options_.caches.generation;
  job.absent = options_.without;
  job.joins = joins;
  job.inference = options_.inference != nullptr;
  job.early_stop = early_stop_;
  hosts_.fill_in(job, host);
  return job;
}

std::vector<WorkerHandle> StageStarter::start(const std::vector<net::ProcessName>& processes,
                                              bool join) {
  // All keys first: a job contains the public keys of all processes.
  for (const net::ProcessName process : processes) {
    keys_.insert_or_assign(process, net::CurveKeyPair::generate());
  }
  std::vector<WorkerHandle> workers;
  std::vector<base::Launch> launches;
  for (const net::ProcessName process : processes) {
    const std::size_t host = run_.plan.process(process).host_index;
    WorkerHandle& worker = workers.emplace_back();
    worker.name = process;
    worker.public_key = keys_.at(process).public_key;
    // Before the process starts, because it connects at once.
    net::LinkOptions link = base::control_link(process, process, worker.public_key,
                                               std::chrono::seconds(run_.plan.recipe.hosts.hold));
    // There is no limit here. The watchdog ends a start that takes too long, because it knows how
    // long the others took.
    link.connect_limit = std::chrono::minutes(30);
    worker.link = hosts_.listener(host).expect(link);
    base::Launch& launch = launches.emplace_back();
    launch.process = process;
    launch.host = host;
    launch.argv = {stage_program().string()};
    launch.input = to_text(job_for(process, host, join));
    launch.log = directory_.log(process.text());
  }
  auto started = hosts_.backend().start_all(launches);
  for (std::size_t i = 0; i < workers.size(); ++i) workers[i].process = std::move(started[i]);
  return workers;
}

}  // namespace strait::run

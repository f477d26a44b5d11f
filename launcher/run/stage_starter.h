#pragma once

#include "framework/net/identity.h"
#include "framework/net/node.h"
#include "launcher/recipe/run_files.h"
#include "launcher/recipe/stage_job.h"
#include "launcher/run/coordinator_options.h"
#include "launcher/run/run_directory.h"
#include "launcher/run/run_hosts.h"
#include "launcher/run/run_launch.h"

namespace strait::run {

// Starts the processes of a run on its hosts, each with a job and keys of its own. All references
// outlive this object. One thread at a time.
class StageStarter {
 public:
  StageStarter(const plan::RunFile& run, const RunDirectory& directory,
               const net::NodeOptions& node, RunHosts& hosts, const LaunchOptions& options,
               trace::EarlyStop::State early_stop = {});

  // Processes of the replicas that the run starts with. Absent ones get a handle without a process.
  std::vector<WorkerHandle> start_all();
  // Starts the processes of an absent replica while the others train. They get new keys, so that a
  // former process that was only disconnected cannot return under its name. UserError: it failed,
  // or `given_up` became true.
  StartedReplica restart_replica(std::uint32_t replica, const std::atomic<bool>& given_up);

 private:
  std::vector<WorkerHandle> start(const std::vector<net::ProcessName>& processes, bool join);
  plan::StageJob job_for(net::ProcessName process, std::size_t host, bool joins) const;

  const plan::RunFile& run_;
  const RunDirectory& directory_;
  const net::NodeOptions& node_;
  RunHosts& hosts_;
  const LaunchOptions& options_;
  const trace::EarlyStop::State early_stop_;
  std::map<net::ProcessName, net::CurveKeyPair> keys_;
};

}  // namespace strait::run

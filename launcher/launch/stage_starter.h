#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "framework/net/curve_keys.h"
#include "framework/net/node.h"
#include "launcher/control/coordinator.h"
#include "launcher/control/run_directory.h"
#include "launcher/launch/run_hosts.h"
#include "launcher/launch/run_launch.h"
#include "launcher/plan/run_files.h"
#include "launcher/plan/stage_job.h"

namespace strait::launch {

// Starts the processes of a run on its hosts, each with a job and keys of its own. All references
// outlive this object. One thread at a time.
class StageStarter {
 public:
  StageStarter(const plan::RunFile& run, const control::RunDirectory& directory,
               const net::NodeOptions& node, RunHosts& hosts, const LaunchOptions& options);

  // Of all replicas that take part when the run begins; of the others there are places only.
  std::vector<control::WorkerHandle> start_all();
  // Those of a replica that is not there, while the others train. They get other keys, so that a
  // former one that was only out of sight cannot come in under its name. UserError.
  control::StartedReplica start_again(std::uint32_t replica);

 private:
  std::vector<control::WorkerHandle> start(const std::vector<net::ProcessName>& processes,
                                           bool join);
  plan::StageJob job_for(net::ProcessName process, std::size_t host, bool joins) const;

  const plan::RunFile& run_;
  const control::RunDirectory& directory_;
  const net::NodeOptions& node_;
  RunHosts& hosts_;
  const LaunchOptions& options_;
  std::map<net::ProcessName, net::CurveKeyPair> keys_;
};

}  // namespace strait::launch

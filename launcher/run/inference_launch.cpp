#include "launcher/run/inference_launch.h"

#include <chrono>
#include <utility>
#include <vector>

#include "framework/net/node.h"
#include "launcher/base/stop_signals.h"
#include "launcher/run/coordination.h"
#include "launcher/run/coordinator.h"
#include "launcher/run/run_hosts.h"
#include "launcher/run/run_storage.h"
#include "launcher/run/stage_starter.h"

namespace strait::run {
namespace {

CoordinatorOptions inference_coordination(const plan::RunFile& run, RunHosts& hosts,
                                          const LaunchOptions& options) {
  CoordinatorOptions coordination = base_coordination(run, hosts);
  coordination.from = coordination.to = options.from;
  coordination.limits.standstill = std::chrono::seconds(0);  // it waits for prompts
  coordination.inference = options.inference;
  return coordination;
}

}  // namespace

Outcome launch_inference(RunDirectory& directory, const plan::RunFile& planned,
                         const LaunchOptions& options) {
  plan::RunFile run = planned;
  const base::StopSignals signals;
  const net::NodeOptions node_options = launcher_node(run.run, directory.next_generation());
  net::Node node(node_options);
  RunHosts hosts(node, run, directory, options.model, signals.count());
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

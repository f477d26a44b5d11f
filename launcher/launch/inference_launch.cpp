#include <chrono>
#include <utility>
#include <vector>

#include "framework/net/node.h"
#include "launcher/control/coordinator.h"
#include "launcher/control/stop_signals.h"
#include "launcher/launch/coordination.h"
#include "launcher/launch/run_hosts.h"
#include "launcher/launch/run_launch.h"
#include "launcher/launch/run_storage.h"
#include "launcher/launch/stage_starter.h"

namespace strait::launch {
namespace {

control::CoordinatorOptions inference_coordination(const plan::RunFile& run, RunHosts& hosts,
                                                   const LaunchOptions& options) {
  control::CoordinatorOptions coordination = base_coordination(run, hosts);
  coordination.from = coordination.to = options.from;
  coordination.limits.standstill = std::chrono::seconds(0);  // it waits for prompts
  coordination.inference = options.inference;
  return coordination;
}

}  // namespace

control::Outcome launch_inference(control::RunDirectory& directory, const plan::RunFile& planned,
                                  const LaunchOptions& options) {
  plan::RunFile run = planned;
  const control::StopSignals signals;
  const net::NodeOptions node_options = launcher_node(run.run, directory.next_generation());
  net::Node node(node_options);
  RunHosts hosts(node, run, directory, options.model, signals.count());
  storage_of(hosts, run, directory.path(), signals.count())
      ->send_inputs(options.resume, store::Part::weights,
                    control::launcher_events(options.observers));
  StageStarter starter(run, directory, node_options, hosts, options);
  std::vector<control::WorkerHandle> workers = starter.start_all();
  StartObserver start(hosts);
  std::vector<control::RunObserver*> observers = options.observers;
  observers.push_back(&start);
  control::Coordinator coordinator(std::move(workers), inference_coordination(run, hosts, options),
                                   std::move(observers));
  return coordinator.run(signals.count());
}

}  // namespace strait::launch

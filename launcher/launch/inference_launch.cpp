#include "launcher/launch/inference_launch.h"

#include <fmt/format.h>

#include <chrono>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "framework/net/node.h"
#include "launcher/base/build_id.h"
#include "launcher/base/errors.h"
#include "launcher/control/coordinator.h"
#include "launcher/control/stop_signals.h"
#include "launcher/launch/run_hosts.h"
#include "launcher/launch/run_storage.h"
#include "launcher/launch/stage_starter.h"

namespace strait::launch {
namespace {

// Tolerates silent hosts once all have loaded.
class StartObserver : public control::RunObserver {
 public:
  explicit StartObserver(RunHosts& hosts) : hosts_(hosts) {}
  void training(store::Step /*from*/, store::Step /*to*/) override { hosts_.tolerate_outages(); }

 private:
  RunHosts& hosts_;
};

control::CoordinatorOptions coordination_of(const plan::RunFile& run, RunHosts& hosts,
                                            const LaunchOptions& options) {
  control::CoordinatorOptions coordination;
  coordination.from = coordination.to = options.from;
  coordination.build = base::build_id();
  coordination.limits.standstill = std::chrono::seconds(0);  // it waits for prompts
  if (run.plan.recipe.hosts.backend != recipe::BackendKind::local) {
    coordination.limits.hold = std::chrono::seconds(run.plan.recipe.hosts.hold);
  }
  coordination.locate_endpoints = [&hosts](std::map<std::string, std::string> endpoints) {
    return hosts.connect_endpoints(std::move(endpoints));
  };
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
  control::Coordinator coordinator(std::move(workers), coordination_of(run, hosts, options),
                                   std::move(observers));
  return coordinator.run(signals.count());
}

}  // namespace strait::launch

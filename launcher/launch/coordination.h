#pragma once

#include "launcher/control/coordinator_options.h"
#include "launcher/control/run_observer.h"
#include "launcher/launch/run_hosts.h"
#include "launcher/plan/run_files.h"

namespace strait::launch {

// The options of the coordinator that training and inference share: the build, how long it waits
// for a silent host, and the endpoints of links. `hosts` outlives the coordinator.
control::CoordinatorOptions base_coordination(const plan::RunFile& run, RunHosts& hosts);

// Tolerates silent hosts once all processes have loaded.
class StartObserver : public control::RunObserver {
 public:
  explicit StartObserver(RunHosts& hosts) : hosts_(hosts) {}
  void training(store::Step /*from*/, store::Step /*to*/) override { hosts_.tolerate_outages(); }

 private:
  RunHosts& hosts_;
};

}  // namespace strait::launch

#pragma once

#include "launcher/plan/run_files.h"
#include "launcher/run/coordinator_options.h"
#include "launcher/run/run_hosts.h"
#include "launcher/run/run_observer.h"

namespace strait::run {

// The options of the coordinator that training and inference share: the build, how long it waits
// for a silent host, and the endpoints of links. `hosts` outlives the coordinator.
CoordinatorOptions base_coordination(const plan::RunFile& run, RunHosts& hosts);

// Tolerates silent hosts once all processes have loaded.
class StartObserver : public RunObserver {
 public:
  explicit StartObserver(RunHosts& hosts) : hosts_(hosts) {}
  void training(store::Step /*from*/, store::Step /*to*/) override { hosts_.tolerate_outages(); }

 private:
  RunHosts& hosts_;
};

}  // namespace strait::run

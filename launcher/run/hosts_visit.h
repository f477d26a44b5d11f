#pragma once

#include <functional>
#include <memory>
#include <string>

#include "framework/net/node.h"
#include "launcher/control/stop_signals.h"
#include "launcher/run/run_directory.h"
#include "launcher/run/run_files.h"
#include "launcher/run/run_hosts.h"
#include "launcher/run/scratch_folder.h"

namespace strait::launcher {

// A plan's hosts, brought up to be asked about themselves: no stage is started, and nothing of the
// visit stays behind here. One thread.
class HostsVisit {
 public:
  // Not for a local plan. `say` is told what somebody has to do before hosts can come up.
  // UserError: a host cannot be worked with, or a signal ended the waiting.
  HostsVisit(Plan plan, const std::function<void(const std::string&)>& say);
  HostsVisit(const HostsVisit&) = delete;
  HostsVisit& operator=(const HostsVisit&) = delete;

  const Plan& plan() const { return run_.plan; }  // with what only the hosts could tell
  RunHosts& hosts() { return *hosts_; }

 private:
  const ScratchFolder scratch_{"visit"};  // keepers need a run's directory
  const StopSignals signals_;
  RunFile run_;
  RunDirectory directory_;
  std::unique_ptr<net::Node> node_;
  std::unique_ptr<RunHosts> hosts_;
};

}  // namespace strait::launcher

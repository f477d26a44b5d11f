#pragma once

#include "framework/net/node.h"
#include "launcher/base/machine.h"
#include "launcher/base/stop_signals.h"
#include "launcher/recipe/run_files.h"
#include "launcher/run/run_directory.h"
#include "launcher/run/run_hosts.h"

namespace strait::run {

// Brings up the hosts of a plan for measurements: starts their agents but no stages, and leaves no
// files on this machine. One thread.
class HostsSession {
 public:
  // Not for a local plan. `report` gets instructions for the user (tokens to carry).
  // `model` outlives this object. UserError: a host cannot be used, or a signal ended the wait.
  HostsSession(plan::Plan plan, const ModelQuestions& model,
               const std::function<void(const std::string&)>& report);
  HostsSession(const HostsSession&) = delete;
  HostsSession& operator=(const HostsSession&) = delete;

  const plan::Plan& plan() const { return run_.plan; }  // with the hosts' facts
  RunHosts& hosts() { return *hosts_; }

 private:
  const base::ScratchFolder scratch_{"visit"};  // agents need a run's directory
  const base::StopSignals signals_;
  plan::RunFile run_;
  RunDirectory directory_;
  std::unique_ptr<net::Node> node_;
  std::unique_ptr<hosts::Rendezvous> rendezvous_;  // null: the hosts are called
  std::unique_ptr<RunHosts> hosts_;
};

}  // namespace strait::run

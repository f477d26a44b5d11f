#pragma once

#include <memory>
#include <string>

#include "framework/net/node.h"
#include "launcher/hosts/agent_job.h"
#include "launcher/transfer/transfer_agent.h"

namespace strait::agent {

// The transfer agent of a host: connected to the launcher and to the transfer agents of the other
// hosts, so that hosts can fetch from each other. If this host has no free port, or the others
// cannot reach it, it exchanges files with the launcher only.
class AgentTransfer {
 public:
  // `address`: where the others reach this host. The node outlives it.
  AgentTransfer(net::Node& node, const hosts::AgentJob& job, const std::filesystem::path& directory,
                const std::string& address);

 private:
  transfer::TransferAgentOptions transfer_options(net::Node& node, const hosts::AgentJob& job,
                                                  const std::filesystem::path& directory);
  void listen(net::Node& node, const hosts::AgentJob& job, const std::string& address);

  std::unique_ptr<net::Listener> listener_;  // null: no inbound connections
  transfer::TransferAgent transfer_agent_;
};

}  // namespace strait::agent

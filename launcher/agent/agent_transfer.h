#pragma once

#include <memory>
#include <string>

#include "framework/net/node.h"
#include "launcher/hosts/agent_job.h"
#include "launcher/transfer/transfer_agent.h"

namespace strait::agent {

// A keeper's porter: linked with the launcher, and with every other keeper that can be reached, so
// that hosts need not get everything from the launcher. Where this host has no port for that, or
// the others cannot reach it, it ships with the launcher alone.
class AgentTransfer {
 public:
  // `address`: where the others reach this host. The node outlives it.
  AgentTransfer(net::Node& node, const hosts::AgentJob& job, const std::filesystem::path& directory,
             const std::string& address);

 private:
  transfer::TransferAgentOptions transfer_options(net::Node& node, const hosts::AgentJob& job,
                               const std::filesystem::path& directory);
  void listen(net::Node& node, const hosts::AgentJob& job, const std::string& address);

  std::unique_ptr<net::Listener> listener_;  // null: the others cannot come here
  transfer::TransferAgent transfer_agent_;
};

}  // namespace strait::agent

#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "framework/mutex.h"
#include "framework/net/node.h"
#include "launcher/hosts/agent_job.h"
#include "launcher/transfer/transfer_agent.h"

namespace strait::hosts {

// The transfer agent of a host: connected to the launcher, and to other hosts where the launcher
// lets one of the two fetch from the other.
class AgentTransfer {
 public:
  // `address`: where the others reach this host. Node and job outlive it.
  AgentTransfer(net::Node& node, const AgentJob& job, const std::filesystem::path& directory,
                std::string address);

 private:
  transfer::TransferAgentOptions transfer_options(const std::filesystem::path& directory);
  std::string accept(const net::ProcessName& name, const std::string& key) STRAIT_EXCLUDES(mutex_);
  void connect(const transfer::message::Connect& to, const net::ProcessName& name)
      STRAIT_EXCLUDES(mutex_);
  // False: this call has recorded the link, and the caller makes it.
  bool is_linked(const net::ProcessName& name, const std::string& key) STRAIT_REQUIRES(mutex_);

  net::Node& node_;
  const AgentJob& job_;
  const std::string address_;
  Mutex mutex_;
  // Keys of the linked agents, by name. An agent that was started again has another key.
  std::map<net::ProcessName, std::string> linked_ STRAIT_GUARDED_BY(mutex_);
  // One for each link: a listener expects a peer once, and links may break.
  std::vector<std::unique_ptr<net::Listener>> listeners_ STRAIT_GUARDED_BY(mutex_);
  transfer::TransferAgent transfer_agent_;
};

}  // namespace strait::hosts

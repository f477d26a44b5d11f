#pragma once

#include "framework/net/node.h"
#include "launcher/hosts/agent_job.h"
#include "launcher/hosts/transfer_agent.h"

namespace strait::hosts {

// The transfer agent of a host: connected to the launcher, and to other hosts where the launcher
// lets one of the two fetch from the other.
class AgentTransfer {
 public:
  // `address`: where the others reach this host. Node and job outlive it.
  AgentTransfer(net::Node& node, const AgentJob& job, const std::filesystem::path& directory,
                std::string address);

  // TransferAgent::perform(), and how two hosts link. One thread.
  template <class Request>
  void perform(Request request, transfer::OnFileReply on_reply) {
    transfer_agent_.perform(std::move(request), std::move(on_reply));
  }
  void perform(const transfer::Accept& accept, const transfer::OnFileReply& on_reply);
  void perform(const transfer::Connect& connect, const transfer::OnFileReply& on_reply);

 private:
  // False: this call has recorded the link, and the caller makes it.
  bool is_linked(const net::ProcessName& name, const std::string& key);

  net::Node& node_;
  const AgentJob& job_;
  const std::string address_;
  // Keys of the linked agents, by name. An agent that was started again has another key.
  std::map<net::ProcessName, std::string> linked_;
  // One for each link: a listener expects a peer once, and links may break.
  std::vector<std::unique_ptr<net::Listener>> listeners_;
  transfer::TransferAgent transfer_agent_;
};

}  // namespace strait::hosts

#pragma once

#include "framework/net/node.h"
#include "launcher/hosts/agent_job.h"
#include "launcher/recipe/run_files.h"

namespace strait::run {

// The addresses of this machine at which the launcher listens for hosts, and the endpoints and keys
// with which a host's agent connects there. At each address, agents and stages share a listener,
// because they have different names. Agents have another one for files, because a listener expects
// one link of a peer.
//
// One thread. The node outlives this object.
class AgentListeners {
 public:
  // A local run: processes reach the launcher over loopback, and there are no agents.
  static AgentListeners loopback(net::Node& node, std::size_t hosts);
  // For n hosts. listen() gives each host an address.
  AgentListeners(net::Node& node, std::size_t hosts);

  // Listens at the address at which this host reaches us. Hosts with the same address share its
  // listeners. `ports`: the range to bind; {0, 0}: any.
  void listen(std::size_t host, const std::string& address, std::pair<int, int> ports);
  // The same for a host whose agent is started again: new keys, and listeners of its own, because
  // links of the former agent may still use the old ones.
  void listen_again(std::size_t host, const std::string& address, std::pair<int, int> ports);

  // The links that the host's agent will open.
  std::unique_ptr<net::Link> expect_agent(const plan::Plan& plan, std::size_t host);
  std::unique_ptr<net::Link> expect_transfer_agent(const plan::Plan& plan, std::size_t host);
  const std::string& agent_key(std::size_t host) const { return keys_[host].public_key; }
  // The job with which the host's agent connects to us.
  hosts::AgentJob job_for(const plan::RunFile& run, std::size_t host) const;

  // Where the stages of this host reach the coordinator.
  net::Listener& control(std::size_t host) const { return *listeners_.at(index_.at(host)).control; }
  // The address of ours that each host reaches.
  std::vector<std::string> addresses() const;

 private:
  struct Listeners {
    std::string address;
    std::unique_ptr<net::Listener> control;  // of stages and agents
    std::unique_ptr<net::Listener> transfer;
  };

  Listeners listen_at(const std::string& address, std::pair<int, int> ports);
  // Empty: the host's agent finds it by its route to us.
  std::string address_for_others(std::size_t host) const;

  net::Node& node_;
  std::vector<Listeners> listeners_;     // an element without listeners is no longer used
  std::vector<std::size_t> index_;       // into listeners_, by host
  std::vector<net::CurveKeyPair> keys_;  // of agents, by host
};

}  // namespace strait::run

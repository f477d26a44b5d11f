#pragma once

#include "framework/net/node.h"
#include "launcher/hosts/agent_job.h"
#include "launcher/hosts/host_agents.h"
#include "launcher/hosts/host_facts.h"
#include "launcher/hosts/path_probe.h"
#include "launcher/hosts/relay.h"
#include "launcher/recipe/plan.h"
#include "launcher/recipe/run_files.h"
#include "launcher/run/control_message.h"
#include "launcher/run/model_questions.h"

namespace strait::run {

// The addresses of this machine at which the launcher listens for hosts, and the endpoints and keys
// with which a host's agent connects there. At each address, agents and stages share a listener.
//
// One thread. The node outlives this object.
class AgentListeners {
 public:
  // A local run: processes reach the launcher over loopback, and there are no agents.
  static AgentListeners loopback(net::Node& node, std::size_t hosts);
  // For n hosts. listen() gives each host an address.
  AgentListeners(net::Node& node, std::size_t hosts);

  // Listens at the address at which this host reaches us. Hosts with the same address share its
  // listener. `ports`: the range to bind; {0, 0}: any.
  void listen(std::size_t host, const std::string& address, std::pair<int, int> ports);
  // The same for a host whose agent is started again: new keys, and a listener of its own, because
  // links of the former agent may still use the old one.
  void listen_again(std::size_t host, const std::string& address, std::pair<int, int> ports);

  // The links that the host's agent will open.
  std::unique_ptr<net::Link> expect_agent(const plan::Plan& plan, std::size_t host);
  std::unique_ptr<net::Link> expect_transfer_agent(const plan::Plan& plan, std::size_t host);
  const std::string& agent_key(std::size_t host) const { return keys_[host].public_key; }
  // The job with which the host's agent connects to us.
  hosts::AgentJob job_for(const plan::RunFile& run, std::size_t host) const;

  // Where the stages of this host reach the coordinator.
  net::Listener& at(std::size_t host) const { return *listeners_.at(index_.at(host)).listener; }
  // The address of ours that each host reaches.
  std::vector<std::string> addresses() const;

 private:
  struct Address {
    std::string text;
    std::unique_ptr<net::Listener> listener;
  };

  Address listen_at(const std::string& address, std::pair<int, int> ports);
  // Empty: the host's agent finds it by its route to us.
  std::string address_for_others(std::size_t host) const;

  net::Node& node_;
  std::vector<Address> listeners_;       // an element without a listener is no longer used
  std::vector<std::size_t> index_;       // into listeners_, by host
  std::vector<net::CurveKeyPair> keys_;  // of agents, by host
};

// Routes the links of one launch: probes which hosts reach each other, decides which end listens
// where, and relays the other links for as long as it lives. One thread at a time.
class RunReach {
 public:
  using Chosen = std::function<bool(const plan::Plan::Link&)>;

  // Routes the chosen links; the others get a route without an address.
  // The agents outlive this object.
  RunReach(hosts::HostAgents& agents, const plan::Plan& plan,
           const std::vector<hosts::HostFacts>& facts,
           const std::vector<std::string>& launcher_addresses, const Chosen& chosen,
           const ModelQuestions& model);

  // Also during the run: probes the chosen links again and decides anew. `launcher_addresses`: the
  // address of this machine that each host reaches. Returns warnings: blocked hosts and relayed
  // links. UserError: a host does not answer, or no port is free for the relay.
  std::vector<Event> route_links(const plan::Plan& plan, const std::vector<hosts::HostFacts>& facts,
                                 const std::vector<std::string>& launcher_addresses,
                                 const Chosen& chosen);

  const std::vector<hosts::LinkRoute>& routes() const { return routes_; }

  // Warnings of the constructor.
  const std::vector<Event>& notes() const { return notes_; }

  // Endpoints by link, as the listening stages report them -> endpoints to connect to. Call it when
  // all stages listen; for a replica that rejoins, when the stages at its links listen.
  std::map<std::string, std::string> connect_endpoints(
      std::map<std::string, std::string> endpoints);

 private:
  struct Relayed {
    std::string token;
    std::size_t binds = 0;   // the host whose stage listens
    std::string relay;       // where that host reaches the relay
    std::string connect_to;  // endpoint on the other host
    std::string stage;       // its endpoint, as last sent to its host; empty: not sent yet
  };

  void set_up_relay(const plan::Plan& plan, const plan::Plan::Link& link, bool relayed,
                    const std::vector<std::string>& launcher_addresses);

  const ModelQuestions& model_;  // outlives this object
  hosts::HostAgents& agents_;
  std::vector<hosts::LinkRoute> routes_;
  std::vector<Event> notes_;
  std::unique_ptr<hosts::Relay> relay_;     // null: no link is relayed
  std::map<std::string, Relayed> relayed_;  // by link
};

}  // namespace strait::run

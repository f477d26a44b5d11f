#pragma once

#include "launcher/hosts/host_agents.h"
#include "launcher/hosts/host_facts.h"
#include "launcher/hosts/path_probe.h"
#include "launcher/hosts/relay.h"
#include "launcher/recipe/plan.h"
#include "launcher/run/control_message.h"
#include "launcher/run/model_questions.h"

namespace strait::run {

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

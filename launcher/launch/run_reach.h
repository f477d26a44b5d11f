#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "launcher/control/control_message.h"
#include "launcher/hosts/host_facts.h"
#include "launcher/plan/plan.h"
#include "launcher/reach/reach_client.h"
#include "launcher/reach/relay.h"
#include "launcher/launch/model_questions.h"
#include "launcher/reach/route.h"

namespace strait::launch {

// How the links of one launch are laid: tries who reaches whom, decides who listens where, and
// relays what cannot meet for as long as it lives. One thread at a time.
class RunReach {
 public:
  using Chosen = std::function<bool(const plan::Plan::Link&)>;

  // Lays those links that are chosen; the others have a route without an address, which nobody
  // listens at.
  RunReach(reach::ReachClient reach, const plan::Plan& plan, const std::vector<hosts::HostFacts>& facts,
           const std::vector<std::string>& launcher_addresses, const Chosen& chosen,
           const ModelQuestions& model);

  // Also while the run goes: tries the chosen links (again) and decides anew. `launcher_addresses`: the address
  // of ours that each host reaches. What the user has to know: who lets nobody in, and who is
  // relayed. UserError: a host does not answer, or the relay has no port.
  std::vector<control::Event> lay(const plan::Plan& plan, const std::vector<hosts::HostFacts>& facts,
                         const std::vector<std::string>& launcher_addresses, const Chosen& chosen);

  const std::vector<reach::LinkRoute>& routes() const { return routes_; }

  // Of the first time.
  const std::vector<control::Event>& notes() const { return notes_; }

  // For further questions to the hosts.
  reach::ReachClient& hosts() { return reach_; }

  // Everybody listens by now, of those who come in the middle of the run the ones they meet: where
  // the other ends have to connect to. By link.
  std::map<std::string, std::string> connect_endpoints(std::map<std::string, std::string> endpoints);

 private:
  struct Relayed {
    std::string token;
    std::size_t binds = 0;   // the host whose stage listens
    std::string relay;       // where that one reaches the relay
    std::string connect_to;  // on the other host
    std::string stage;       // where the one that listens does, as its host was told; "": not yet
  };

  void lay_relay(const plan::Plan& plan, const plan::Plan::Link& link, bool relayed,
                 const std::vector<std::string>& launcher_addresses);

  const ModelQuestions& model_;  // outlives this object
  reach::ReachClient reach_;
  std::vector<reach::LinkRoute> routes_;
  std::vector<control::Event> notes_;
  std::unique_ptr<reach::Relay> relay_;            // null: nobody needs one
  std::map<std::string, Relayed> relayed_;  // by link
};

}  // namespace strait::launch

#include "launcher/run/run_reach.h"

#include "launcher/base/launcher_links.h"
#include "launcher/base/own_program.h"
#include "launcher/hosts/transfer_peers.h"

namespace strait::run {

namespace {

constexpr const char* kLoopback = "127.0.0.1";

net::ProcessName agent_name(std::size_t host) {
  return net::ProcessName::host_agent(static_cast<std::uint32_t>(host));
}

std::chrono::seconds hold_of(const plan::Plan& plan) {
  return std::chrono::seconds(plan.recipe.hosts.hold);
}

}  // namespace

AgentListeners::AgentListeners(net::Node& node, std::size_t hosts) : node_(node), index_(hosts) {
  for (std::size_t i = 0; i < hosts; ++i) keys_.push_back(net::CurveKeyPair::generate());
}

AgentListeners AgentListeners::loopback(net::Node& node, std::size_t hosts) {
  AgentListeners listeners(node, hosts);
  listeners.listeners_.push_back({kLoopback, node.listen({})});
  return listeners;
}

AgentListeners::Address AgentListeners::listen_at(const std::string& address,
                                                  std::pair<int, int> ports) {
  net::BindAddress bind;
  bind.host = address;
  bind.first_port = static_cast<std::uint16_t>(ports.first);
  bind.last_port = static_cast<std::uint16_t>(ports.second);
  return {address, node_.listen(bind)};
}

void AgentListeners::listen(std::size_t host, const std::string& address,
                            std::pair<int, int> ports) {
  const auto found = std::ranges::find(listeners_, address, &Address::text);
  index_.at(host) = static_cast<std::size_t>(found - listeners_.begin());
  if (found == listeners_.end()) listeners_.push_back(listen_at(address, ports));
}

void AgentListeners::listen_again(std::size_t host, const std::string& address,
                                  std::pair<int, int> ports) {
  Address own = listen_at(address, ports);
  const std::size_t former = std::exchange(index_.at(host), listeners_.size());
  listeners_.push_back(std::move(own));
  // No host uses the former one any more. The element stays, because indices refer to it.
  if (std::ranges::find(index_, former) == index_.end()) listeners_[former] = Address{};
  keys_[host] = net::CurveKeyPair::generate();
}

std::unique_ptr<net::Link> AgentListeners::expect_agent(const plan::Plan& plan, std::size_t host) {
  const net::ProcessName name = agent_name(host);
  return at(host).expect(
      base::service_link(base::kAgentService, name, name, keys_[host].public_key, hold_of(plan)));
}

std::unique_ptr<net::Link> AgentListeners::expect_transfer_agent(const plan::Plan& plan,
                                                                 std::size_t host) {
  const net::ProcessName name = agent_name(host);
  return at(host).expect(transfer::transfer_link(net::ProcessName::coordinator(), name, name,
                                                 keys_[host].public_key, hold_of(plan)));
}

// A host that reaches us by loopback is this machine, so other hosts reach it at our address.
std::string AgentListeners::address_for_others(std::size_t host) const {
  if (!hosts::is_loopback(listeners_[index_[host]].text)) return {};
  for (const std::string& address : addresses()) {
    if (!hosts::is_loopback(address)) return address;
  }
  return {};
}

hosts::AgentJob AgentListeners::job_for(const plan::RunFile& run, std::size_t host) const {
  const recipe::RecipeHost listed = plan::hosts_of(run.plan.recipe)[host];
  const recipe::Recipe::Hosts& settings = run.plan.recipe.hosts;
  hosts::AgentJob job;
  job.run = run.run;
  job.run_name = run.plan.recipe.name;
  job.generation = node_.options().generation;
  job.host = static_cast<std::uint32_t>(host);
  job.host_name = run.plan.hosts[host].name;
  job.build = base::build_id();
  job.keys = keys_[host];
  job.launcher_key = node_.options().keys.public_key;
  job.endpoint = at(host).endpoint();
  job.directory = listed.directory.empty() ? recipe::kHostDirectory : listed.directory;
  job.environment = listed.environment;
  job.address = listed.address.empty() ? address_for_others(host) : listed.address;
  job.devices = listed.devices;
  job.ports = settings.ports;
  job.hold = settings.hold;
  job.up_megabits = listed.up_megabits ? listed.up_megabits : settings.ship_megabits;
  job.down_megabits = listed.down_megabits;
  return job;
}

std::vector<std::string> AgentListeners::addresses() const {
  std::vector<std::string> addresses;
  for (const std::size_t index : index_) addresses.push_back(listeners_[index].text);
  return addresses;
}

namespace {

// A host answers at once, unless its link to the launcher has to reconnect.
constexpr std::chrono::seconds kRelayAnswer{20};

std::string relay_endpoint(hosts::Relay& relay, const std::string& address) {
  try {
    return relay.endpoint(address).text();
  } catch (const hosts::PathError& error) {
    throw base::UserError(base::ExitCode::bad_input,
                          "this machine has to relay links of hosts that cannot reach each "
                          "other, but no port is free for that: {}",
                          error.what());
  }
}

// Forecast seconds of a step with the relayed links.
double seconds_with_relay(const ModelQuestions& model, const plan::Plan& plan,
                          const std::vector<hosts::LinkRoute>& routes) {
  std::set<std::string> relayed;
  for (const hosts::LinkRoute& route : routes) {
    if (route.relayed) relayed.insert(route.link);
  }
  return model.forecast_step(
      plan, [&](const plan::Plan::Link& link, std::size_t from, std::size_t to) {
        const plan::PathSpeed speed = plan::path_speed(plan, from, to);
        return relayed.contains(link.name) ? plan::relayed_speed(speed, relayed.size()) : speed;
      });
}

}  // namespace

RunReach::RunReach(hosts::HostAgents& agents, const plan::Plan& plan,
                   const std::vector<hosts::HostFacts>& facts,
                   const std::vector<std::string>& launcher_addresses, const Chosen& chosen,
                   const ModelQuestions& model)
    : model_(model), agents_(agents) {
  for (const plan::Plan::Link& link : plan.links)
    routes_.push_back({link.name, link.listens, "", false});
  notes_ = route_links(plan, facts, launcher_addresses, chosen);
}

std::vector<Event> RunReach::route_links(const plan::Plan& plan,
                                         const std::vector<hosts::HostFacts>& facts,
                                         const std::vector<std::string>& launcher_addresses,
                                         const Chosen& chosen) {
  std::vector<Event> notes;
  plan::Plan part = plan;
  std::erase_if(part.links, [&](const plan::Plan::Link& link) { return !chosen(link); });
  const auto pairs = hosts::paths_to_probe(part);
  std::vector<hosts::PathProbe> tries;
  if (!pairs.empty()) {
    auto addresses = hosts::candidate_addresses(plan::hosts_of(plan.recipe), facts);
    for (std::size_t host = 0; host < addresses.size(); ++host) {
      // Other hosts are not queried: they may be lost.
      const auto here = [host](const auto& pair) { return pair.first == host; };
      if (std::ranges::none_of(pairs, here)) addresses[host].clear();
    }
    const hosts::OpenPorts ports(agents_, addresses);
    for (const std::string& problem : ports.problems()) notes.push_back({"address", problem});
    tries = hosts::probe_paths(agents_, ports, pairs);
  }
  const std::vector<hosts::LinkRoute> routes = hosts::choose_routes(part, tries);
  for (const hosts::LinkRoute& route : routes) {
    *std::ranges::find(routes_, route.link, &hosts::LinkRoute::link) = route;
  }
  for (const std::string& blocked : hosts::blocked_hosts(part, tries)) {
    notes.push_back({"blocked", blocked});
  }
  if (std::ranges::any_of(routes, &hosts::LinkRoute::relayed)) {
    notes.push_back({"relayed", hosts::relay_warning(plan, routes_,
                                                     seconds_with_relay(model_, plan, routes_))});
  }
  for (std::size_t i = 0; i < routes.size(); ++i) {
    set_up_relay(plan, part.links[i], routes[i].relayed, launcher_addresses);
  }
  return notes;
}

void RunReach::set_up_relay(const plan::Plan& plan, const plan::Plan::Link& link, bool relayed,
                            const std::vector<std::string>& launcher_addresses) {
  const auto former = relayed_.find(link.name);
  // Hosts identify a relayed link by its token; a new token would make a second link.
  const std::string token =
      former == relayed_.end() ? hosts::Preamble::random_token() : former->second.token;
  if (former != relayed_.end()) relayed_.erase(former);
  if (!relayed) return;
  Relayed one;
  one.token = token;
  one.binds = plan.process(link.listens).host_index;
  const std::size_t dials = plan.process(link.connects).host_index;
  if (!relay_) relay_ = std::make_unique<hosts::Relay>(plan.recipe.hosts.ports);
  one.relay = relay_endpoint(*relay_, launcher_addresses[one.binds]);
  relay_->admit(one.token);
  const std::map<std::size_t, hosts::JoinRelay> request = {
      {dials, {one.token, relay_endpoint(*relay_, launcher_addresses[dials])}}};
  const auto replies = agents_.ask_all(request, kRelayAnswer);
  std::string problem;
  const auto* dialled = hosts::content_of(replies.at(dials), problem);
  if (dialled == nullptr) {
    throw base::UserError(base::ExitCode::bad_input, "host {} cannot relay {}: {}",
                          agents_.name(dials), link.name, problem);
  }
  one.connect_to = dialled->endpoint;
  relayed_.emplace(link.name, std::move(one));
}

std::map<std::string, std::string> RunReach::connect_endpoints(
    std::map<std::string, std::string> endpoints) {
  for (auto& [link, endpoint] : endpoints) {
    const auto found = relayed_.find(link);
    if (found == relayed_.end()) continue;
    Relayed& one = found->second;
    // Sent only when it changes: a repeated request breaks the connections of the link.
    if (one.stage != endpoint)
      agents_.ask(one.binds, hosts::JoinRelay{one.token, one.relay, endpoint});
    one.stage = std::exchange(endpoint, one.connect_to);
  }
  return endpoints;
}

}  // namespace strait::run

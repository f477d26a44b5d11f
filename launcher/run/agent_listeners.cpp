#include "launcher/run/agent_listeners.h"

#include "launcher/base/launcher_links.h"
#include "launcher/base/own_program.h"
#include "launcher/hosts/agent_message.h"
#include "launcher/hosts/host_facts.h"
#include "launcher/hosts/transfer_peers.h"
#include "launcher/recipe/placement.h"

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
  listeners.listeners_.push_back({kLoopback, node.listen({}), nullptr});
  return listeners;
}

AgentListeners::Listeners AgentListeners::listen_at(const std::string& address,
                                                    std::pair<int, int> ports) {
  net::BindAddress bind;
  bind.host = address;
  bind.first_port = static_cast<std::uint16_t>(ports.first);
  bind.last_port = static_cast<std::uint16_t>(ports.second);
  return {address, node_.listen(bind), node_.listen(bind)};
}

void AgentListeners::listen(std::size_t host, const std::string& address,
                            std::pair<int, int> ports) {
  const auto found = std::ranges::find(listeners_, address, &Listeners::address);
  index_.at(host) = static_cast<std::size_t>(found - listeners_.begin());
  if (found == listeners_.end()) listeners_.push_back(listen_at(address, ports));
}

void AgentListeners::listen_again(std::size_t host, const std::string& address,
                                  std::pair<int, int> ports) {
  Listeners own = listen_at(address, ports);
  const std::size_t former = std::exchange(index_.at(host), listeners_.size());
  listeners_.push_back(std::move(own));
  // No host uses the former listeners any more. The element stays, because indices refer to it.
  if (std::ranges::find(index_, former) == index_.end()) listeners_[former] = Listeners{};
  keys_[host] = net::CurveKeyPair::generate();
}

std::unique_ptr<net::Link> AgentListeners::expect_agent(const plan::Plan& plan, std::size_t host) {
  const net::ProcessName name = agent_name(host);
  return listeners_[index_[host]].control->expect(
      base::service_link(base::kAgentService, name, name, keys_[host].public_key, hold_of(plan)));
}

std::unique_ptr<net::Link> AgentListeners::expect_transfer_agent(const plan::Plan& plan,
                                                                 std::size_t host) {
  const net::ProcessName name = agent_name(host);
  return listeners_[index_[host]].transfer->expect(transfer::transfer_link(
      net::ProcessName::coordinator(), name, name, keys_[host].public_key, hold_of(plan)));
}

// A host that reaches us by loopback is this machine, so other hosts reach it at our address.
std::string AgentListeners::address_for_others(std::size_t host) const {
  if (!hosts::is_loopback(listeners_[index_[host]].address)) return {};
  for (const std::string& address : addresses()) {
    if (!hosts::is_loopback(address)) return address;
  }
  return {};
}

hosts::AgentJob AgentListeners::job_for(const plan::RunFile& run, std::size_t host) const {
  const recipe::RecipeHost listed = plan::hosts_of(run.plan.recipe)[host];
  const recipe::Recipe::Hosts& settings = run.plan.recipe.hosts;
  const Listeners& at = listeners_[index_[host]];
  hosts::AgentJob job;
  job.run = run.run;
  job.run_name = run.plan.recipe.name;
  job.generation = node_.options().generation;
  job.host = static_cast<std::uint32_t>(host);
  job.host_name = run.plan.hosts[host].name;
  job.build = base::build_id();
  job.keys = keys_[host];
  job.launcher_key = node_.options().keys.public_key;
  job.endpoints = {{base::kAgentService, at.control->endpoint()},
                   {base::kTransferService, at.transfer->endpoint()}};
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
  for (const std::size_t index : index_) addresses.push_back(listeners_[index].address);
  return addresses;
}

}  // namespace strait::run

#include "launcher/reach/run_reach.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "launcher/plan/placement.h"
#include "launcher/plan/step_forecast.h"
#include "launcher/reach/path_finder.h"
#include "launcher/reach/ticket.h"
#include "launcher/user_error.h"

namespace strait::launcher {
namespace {

constexpr std::chrono::seconds kRelayAnswer{20};

// Every address of ours at which a host has to find the relay, once.
std::vector<std::string> distinct(std::vector<std::string> addresses) {
  std::ranges::sort(addresses);
  addresses.erase(std::unique(addresses.begin(), addresses.end()), addresses.end());
  std::erase(addresses, "");  // of a host that was not called
  return addresses;
}

std::unique_ptr<Relay> open_relay(const std::vector<std::string>& doors, const Plan& plan) {
  try {
    return std::make_unique<Relay>(distinct(doors), plan.recipe.hosts.ports);
  } catch (const PathError& error) {
    throw UserError(ExitCode::bad_input,
                    fmt::format("this machine has to relay links of hosts that cannot reach each "
                                "other, and has no port for that: {}",
                                error.what()));
  }
}

// A step of the plan, given who is relayed.
double seconds_with_relay(const Plan& plan, const std::vector<LinkRoute>& routes) {
  std::set<std::string> relayed;
  for (const LinkRoute& route : routes) {
    if (route.relayed) relayed.insert(route.link);
  }
  return forecast_step(plan, [&](const Plan::Link& link, std::size_t from, std::size_t to) {
    const PathSpeed speed = path_speed(plan, from, to);
    return relayed.contains(link.name) ? relayed_speed(speed, relayed.size()) : speed;
  });
}

}  // namespace

RunReach::RunReach(Reach reach, const Plan& plan, const std::vector<HostFacts>& facts,
                   const std::vector<std::string>& doors, const Chosen& chosen)
    : reach_(std::move(reach)) {
  for (const Plan::Link& link : plan.links) routes_.push_back({link.name, link.listens, "", false});
  lay(plan, facts, chosen);
  lay_relays(plan, doors);
}

void RunReach::lay(const Plan& plan, const std::vector<HostFacts>& facts, const Chosen& chosen) {
  Plan part = plan;
  std::erase_if(part.links, [&](const Plan::Link& link) { return !chosen(link); });
  const auto pairs = paths_to_try(part);
  std::vector<PathTry> tries;
  if (!pairs.empty()) {
    auto addresses = candidate_addresses(hosts_of(plan.recipe), facts);
    for (std::size_t host = 0; host < addresses.size(); ++host) {
      // Nobody else is asked: it may be gone.
      const auto here = [host](const auto& pair) { return pair.first == host; };
      if (std::ranges::none_of(pairs, here)) addresses[host].clear();
    }
    const OpenPorts ports(reach_, addresses);
    for (const std::string& trouble : ports.troubles()) notes_.push_back({"address", trouble});
    tries = try_paths(reach_, ports, pairs);
  }
  for (LinkRoute& route : choose_routes(part, tries)) {
    *std::ranges::find(routes_, route.link, &LinkRoute::link) = route;
  }
  for (const std::string& blocked : blocked_hosts(part, tries)) {
    notes_.push_back({"blocked", blocked});
  }
}

void RunReach::lay_relays(const Plan& plan, const std::vector<std::string>& doors) {
  if (std::ranges::none_of(routes_, &LinkRoute::relayed)) return;
  notes_.push_back({"relayed", relay_warning(plan, routes_, seconds_with_relay(plan, routes_))});
  relay_ = open_relay(doors, plan);
  const auto place_for = [&](std::size_t host) {
    const auto at = std::ranges::find(relay_->endpoints(), doors[host], &net::Endpoint::host);
    return at->text();
  };
  for (std::size_t i = 0; i < routes_.size(); ++i) {
    if (!routes_[i].relayed) continue;
    const Plan::Link& link = plan.links[i];
    const std::size_t binds = plan.process(link.listens).host_index;
    const std::size_t dials = plan.process(link.connects).host_index;
    Relayed one{link.name, Ticket::random_token(), binds, place_for(binds), {}};
    relay_->admit(one.token);
    const auto answers =
        reach_.ask({{dials, DialRelay{one.token, place_for(dials)}}}, kRelayAnswer);
    std::string trouble;
    const auto* dialled = answer_in<RelayDialled>(answers.at(dials), trouble);
    if (dialled == nullptr) {
      throw UserError(ExitCode::bad_input,
                      fmt::format("host {} cannot take part in relaying {}: {}", reach_.name(dials),
                                  link.name, trouble));
    }
    one.connect_to = dialled->place;
    relayed_.push_back(std::move(one));
  }
}

std::map<std::string, std::string> RunReach::meet(std::map<std::string, std::string> endpoints) {
  for (const Relayed& one : relayed_) {
    std::string& endpoint = endpoints.at(one.link);
    reach_.give(one.binds, BindRelay{one.token, one.relay, endpoint});
    endpoint = one.connect_to;
  }
  return endpoints;
}

}  // namespace strait::launcher

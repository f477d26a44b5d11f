#include "launcher/reach/run_reach.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "launcher/plan/placement.h"
#include "launcher/plan/step_forecast.h"
#include "launcher/reach/path_finder.h"
#include "launcher/reach/ticket.h"
#include "launcher/user_error.h"

namespace strait::launcher {
namespace {

constexpr std::chrono::seconds kRelayAnswer{20};

std::string relay_place(Relay& relay, const std::string& address) {
  try {
    return relay.place(address).text();
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
  notes_ = lay(plan, facts, doors, chosen);
}

std::vector<Event> RunReach::lay(const Plan& plan, const std::vector<HostFacts>& facts,
                                 const std::vector<std::string>& doors, const Chosen& chosen) {
  std::vector<Event> notes;
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
    for (const std::string& trouble : ports.troubles()) notes.push_back({"address", trouble});
    tries = try_paths(reach_, ports, pairs);
  }
  const std::vector<LinkRoute> routes = choose_routes(part, tries);
  for (const LinkRoute& route : routes) {
    *std::ranges::find(routes_, route.link, &LinkRoute::link) = route;
  }
  for (const std::string& blocked : blocked_hosts(part, tries)) {
    notes.push_back({"blocked", blocked});
  }
  if (std::ranges::any_of(routes, &LinkRoute::relayed)) {
    notes.push_back({"relayed", relay_warning(plan, routes_, seconds_with_relay(plan, routes_))});
  }
  for (std::size_t i = 0; i < routes.size(); ++i) {
    lay_relay(plan, part.links[i], routes[i].relayed, doors);
  }
  return notes;
}

void RunReach::lay_relay(const Plan& plan, const Plan::Link& link, bool relayed,
                         const std::vector<std::string>& doors) {
  const auto former = relayed_.find(link.name);
  // Hosts know the ends of a link by its token, and make no second one.
  const std::string token =
      former == relayed_.end() ? Ticket::random_token() : former->second.token;
  if (former != relayed_.end()) relayed_.erase(former);
  if (!relayed) return;
  Relayed one;
  one.token = token;
  one.binds = plan.process(link.listens).host_index;
  const std::size_t dials = plan.process(link.connects).host_index;
  if (!relay_) relay_ = std::make_unique<Relay>(plan.recipe.hosts.ports);
  one.relay = relay_place(*relay_, doors[one.binds]);
  relay_->admit(one.token);
  const auto answers =
      reach_.ask({{dials, DialRelay{one.token, relay_place(*relay_, doors[dials])}}}, kRelayAnswer);
  std::string trouble;
  const auto* dialled = answer_in<RelayDialled>(answers.at(dials), trouble);
  if (dialled == nullptr) {
    throw UserError(ExitCode::bad_input, fmt::format("host {} cannot take part in relaying {}: {}",
                                                     reach_.name(dials), link.name, trouble));
  }
  one.connect_to = dialled->place;
  relayed_.emplace(link.name, std::move(one));
}

std::map<std::string, std::string> RunReach::meet(std::map<std::string, std::string> endpoints) {
  for (auto& [link, endpoint] : endpoints) {
    const auto found = relayed_.find(link);
    if (found == relayed_.end()) continue;
    Relayed& one = found->second;
    // Said again, it would break off what goes over the link.
    if (one.stage != endpoint) reach_.give(one.binds, BindRelay{one.token, one.relay, endpoint});
    one.stage = std::exchange(endpoint, one.connect_to);
  }
  return endpoints;
}

}  // namespace strait::launcher

#include "launcher/hosts/path_probe.h"

#include "framework/net/endpoint.h"
#include "launcher/base/text.h"

namespace strait::hosts {
namespace {

using std::chrono::seconds;

constexpr double kDialSeconds = 3;  // two SYN retransmissions of TCP
// Probes end after kDialSeconds. The rest is for a host whose link to the launcher reconnects.
constexpr seconds kDialTimeout{20};
constexpr double kCompareSeconds = 0.6;  // enough to distinguish a fast path from a slow one
// Longer than kMeasureLimit of the hosts, so that their own error is reported.
constexpr seconds kFlowTimeout{60};

using Route = std::tuple<std::size_t, std::size_t, std::string>;  // from, to, its interface

// The first address that answered on each route, for pairs of hosts with several routes.
std::vector<const PathProbe*> competing_paths(const OpenPorts& ports,
                                              const std::vector<PathProbe>& tries) {
  std::map<Route, const PathProbe*> first;
  for (const PathProbe& one : tries) {
    if (one.problem.empty())
      first.try_emplace({one.from, one.to, ports.address(one.to, one.address).interface}, &one);
  }
  std::vector<const PathProbe*> competing;
  for (const auto& [route, one] : first) {
    // Where there is only one route, its speed decides nothing here, and a measurement takes time.
    const bool choice = std::ranges::count_if(first, [one = one](const auto& other) {
                          return other.second->from == one->from && other.second->to == one->to;
                        }) > 1;
    if (choice) competing.push_back(one);
  }
  return competing;
}

// Removes paths from the list and returns them. No two of them share a host.
std::vector<const PathProbe*> take_disjoint(std::vector<const PathProbe*>& paths) {
  std::set<std::size_t> busy;
  std::vector<const PathProbe*> disjoint;
  std::erase_if(paths, [&](const PathProbe* one) {
    if (busy.contains(one->from) || busy.contains(one->to)) return false;
    busy.insert({one->from, one->to});
    disjoint.push_back(one);
    return true;
  });
  return disjoint;
}

// Measures competing paths and enters their speeds.
void compare_speeds(HostAgents& agents, const OpenPorts& ports, std::vector<PathProbe>& tries) {
  std::map<Route, double> speeds;
  for (auto competing = competing_paths(ports, tries); !competing.empty();) {
    // Two measurements on one host would share its line, and each would seem slow.
    const auto disjoint = take_disjoint(competing);
    std::map<std::size_t, MeasureFlow> requests;
    for (const PathProbe* one : disjoint) {
      const std::vector<std::string> endpoints = {
          ports.address(one->to, one->address).endpoints.front()};
      requests[one->from] = {static_cast<std::int64_t>(one->to), endpoints, kCompareSeconds};
      requests[one->to] = {static_cast<std::int64_t>(one->from), endpoints};
    }
    const auto replies = agents.ask_all(requests, kFlowTimeout);
    for (const PathProbe* one : disjoint) {
      const auto* measured = std::get_if<FlowMeasured>(&replies.at(one->to));
      // A path that could not be measured stays a candidate, with a speed of zero.
      if (measured == nullptr) continue;
      speeds[{one->from, one->to, ports.address(one->to, one->address).interface}] =
          measured->bytes_per_second;
    }
  }
  for (PathProbe& one : tries) {
    if (!one.problem.empty()) continue;
    const auto speed =
        speeds.find({one.from, one.to, ports.address(one.to, one.address).interface});
    if (speed != speeds.end()) one.bytes_per_second = speed->second;
  }
}

constexpr const char* kOwnHost = "127.0.0.1";
// Speeds within 10 % count as equal: short measurements vary that much.
constexpr double kAboutTheSame = 1.1;

using Pair = std::pair<std::size_t, std::size_t>;

Pair hosts_of(const plan::Plan& plan, const plan::Plan::Link& link) {
  return {plan.process(link.connects).host_index, plan.process(link.listens).host_index};
}

bool better(const PathProbe& one, const PathProbe& than) {
  if (one.bytes_per_second > kAboutTheSame * than.bytes_per_second) return true;
  if (than.bytes_per_second > kAboutTheSame * one.bytes_per_second) return false;
  return kAboutTheSame * one.seconds < than.seconds;
}

LinkRoute route_of(const plan::Plan& plan, const plan::Plan::Link& link,
                   const std::vector<PathProbe>& tries) {
  const auto [upper, lower] = hosts_of(plan, link);
  LinkRoute route{link.name, link.listens, kOwnHost, false};
  if (upper == lower) return route;
  // The ends swap where only the other direction is open.
  if (const PathProbe* down = best_probe(tries, upper, lower)) {
    route.address = down->address;
  } else if (const PathProbe* up = best_probe(tries, lower, upper)) {
    route.binds = link.connects;
    route.address = up->address;
  } else {
    route.relayed = true;
  }
  return route;
}

}  // namespace

std::vector<std::vector<std::string>> candidate_addresses(
    const std::vector<recipe::RecipeHost>& listed, const std::vector<HostFacts>& facts) {
  std::vector<std::vector<std::string>> addresses;
  for (std::size_t i = 0; i < facts.size(); ++i) {
    std::vector<std::string> own;
    if (!listed[i].address.empty()) {
      own = {listed[i].address};
    } else {
      own = {facts[i].address};
      for (const std::string& address : facts[i].addresses) {
        if (std::ranges::find(own, address) == own.end()) own.push_back(address);
      }
    }
    addresses.push_back(std::move(own));
  }
  return addresses;
}

OpenPorts::OpenPorts(HostAgents& agents, const std::vector<std::vector<std::string>>& addresses,
                     int links)
    : agents_(agents), addresses_(addresses.size()) {
  std::vector<ProbePeer> peers;
  for (std::size_t i = 0; i < addresses.size(); ++i) {
    if (!addresses[i].empty()) peers.push_back({static_cast<std::int64_t>(i), agents_.key(i)});
  }
  std::map<std::size_t, OpenPort> requests;
  for (std::size_t i = 0; i < addresses.size(); ++i) {
    if (!addresses[i].empty()) requests[i] = {addresses[i], peers, links};
  }
  for (const auto& [host, reply] : agents_.ask_all(requests, kDialTimeout)) {
    std::string problem;
    if (const auto* opened = content_of(reply, problem)) {
      add_addresses(host, *opened);
    } else {
      problems_.push_back(fmt::format("host {}: {}", agents_.name(host), problem));
    }
  }
}

// Other hosts will connect to what a host answers, so it is checked here.
void OpenPorts::add_addresses(std::size_t host, const PortOpened& opened) {
  for (const OpenedAddress& address : opened.addresses) {
    Address known{"", address.interface, address.endpoints};
    for (const std::string& text : address.endpoints) {
      const auto endpoint = net::Endpoint::parse(text);
      if (!endpoint || (!known.text.empty() && endpoint->host != known.text)) {
        throw base::UserError(base::ExitCode::internal,
                              "host {} says that it listens at \"{}\"; expected "
                              "tcp://ADDRESS:PORT, with one address for all links",
                              agents_.name(host), base::printable(text));
      }
      known.text = endpoint->host;
    }
    if (known.endpoints.empty()) continue;
    if (known.interface.empty()) known.interface = known.text;
    addresses_[host].push_back(std::move(known));
  }
  for (const std::string& problem : opened.problems) {
    problems_.push_back(fmt::format("host {}: {}", agents_.name(host), problem));
  }
}

OpenPorts::~OpenPorts() {
  for (std::size_t i = 0; i < addresses_.size(); ++i) {
    // Not waited for. A later request of the host is served after this one.
    if (!addresses_[i].empty()) agents_.ask(i, OpenPort{});
  }
}

const OpenPorts::Address& OpenPorts::address(std::size_t host, const std::string& text) const {
  return *std::ranges::find(addresses_.at(host), text, &Address::text);
}

std::vector<PathProbe> probe_paths(HostAgents& agents, const OpenPorts& ports,
                                   const std::vector<std::pair<std::size_t, std::size_t>>& pairs) {
  std::vector<PathProbe> tries;
  std::map<std::size_t, TryPaths> requests;
  std::map<std::size_t, std::vector<std::size_t>> tries_of;  // by the host that probes
  for (const auto& [from, to] : pairs) {
    for (const OpenPorts::Address& address : ports.addresses(to)) {
      TryPaths& request = requests[from];
      request.limit_seconds = kDialSeconds;
      request.targets.push_back({static_cast<std::int64_t>(to), address.endpoints.front()});
      tries_of[from].push_back(tries.size());
      tries.push_back({from, to, address.text, "not tried", 0, 0});
    }
  }
  for (const auto& [from, reply] : agents.ask_all(requests, kDialTimeout)) {
    std::string problem;
    const auto* tried = content_of(reply, problem);
    if (tried != nullptr && tried->results.size() != tries_of[from].size()) {
      throw base::UserError(base::ExitCode::internal,
                            "host {} was asked to try {} addresses and reports {}",
                            agents.name(from), tries_of[from].size(), tried->results.size());
    }
    for (std::size_t i = 0; i < tries_of[from].size(); ++i) {
      PathProbe& one = tries[tries_of[from][i]];
      one.problem = tried != nullptr ? tried->results[i].problem : problem;
      if (tried != nullptr) one.seconds = tried->results[i].seconds;
    }
  }
  compare_speeds(agents, ports, tries);
  return tries;
}

// The circle method of round-robin tournaments: one slot is fixed, the others rotate by one per
// round, and opposite slots are a pair. With an odd number of hosts one slot is empty.
std::vector<std::vector<HostPair>> probe_rounds(std::size_t hosts) {
  std::vector<std::vector<HostPair>> rounds;
  if (hosts < 2) return rounds;
  const std::size_t slots = hosts + hosts % 2;
  const std::size_t moving = slots - 1;
  for (std::size_t round = 0; round < moving; ++round) {
    std::vector<HostPair> pairs;
    for (std::size_t i = 0; i < slots / 2; ++i) {
      const std::size_t one = i == 0 ? moving : (round + i) % moving;
      const std::size_t other = (round + moving - i) % moving;
      if (one < hosts && other < hosts)
        pairs.emplace_back(std::min(one, other), std::max(one, other));
    }
    if (!pairs.empty()) rounds.push_back(std::move(pairs));
  }
  return rounds;
}

std::vector<Pair> paths_to_probe(const plan::Plan& plan) {
  std::set<Pair> pairs;
  for (const plan::Plan::Link& link : plan.links) {
    const auto [upper, lower] = hosts_of(plan, link);
    if (upper == lower) continue;
    pairs.insert({upper, lower});
    pairs.insert({lower, upper});
  }
  return {pairs.begin(), pairs.end()};
}

const PathProbe* best_probe(const std::vector<PathProbe>& tries, std::size_t from, std::size_t to) {
  const PathProbe* best = nullptr;
  for (const PathProbe& one : tries) {
    if (one.from != from || one.to != to || !one.problem.empty()) continue;
    if (best == nullptr || better(one, *best)) best = &one;
  }
  return best;
}

std::vector<LinkRoute> choose_routes(const plan::Plan& plan, const std::vector<PathProbe>& tries) {
  std::vector<LinkRoute> routes;
  for (const plan::Plan::Link& link : plan.links) routes.push_back(route_of(plan, link, tries));
  return routes;
}

std::vector<std::string> blocked_hosts(const plan::Plan& plan,
                                       const std::vector<PathProbe>& tries) {
  std::vector<std::string> sentences;
  for (std::size_t host = 0; host < plan.hosts.size(); ++host) {
    std::vector<PathProbe> towards;
    std::ranges::copy_if(tries, std::back_inserter(towards),
                         [&](const PathProbe& one) { return one.to == host; });
    // One host that gets through shows that no firewall blocks all of them. What the others lack is
    // a route.
    const bool open = std::ranges::any_of(towards, &std::string::empty, &PathProbe::problem);
    if (towards.empty() || open) continue;
    std::set<std::string> addresses;
    for (const PathProbe& one : towards) addresses.insert(one.address);
    const auto [first, last] = plan.recipe.hosts.ports;
    sentences.push_back(
        fmt::format("inbound TCP connections to host {} at {} are blocked (from {}: {}); open the "
                    "TCP ports {}-{} to the other hosts in its firewall, or name an address that "
                    "they reach in hosts.list",
                    plan.hosts[host].name, fmt::join(addresses, " or "),
                    plan.hosts[towards[0].from].name, towards[0].problem, first, last));
  }
  return sentences;
}

std::string relay_warning(const plan::Plan& plan, const std::vector<LinkRoute>& routes,
                          double step_seconds) {
  std::set<std::string> pairs;
  std::vector<std::string> links;
  std::int64_t bytes = 0;
  for (std::size_t i = 0; i < routes.size(); ++i) {
    if (!routes[i].relayed) continue;
    const plan::Plan::Link& link = plan.links[i];
    const auto [upper, lower] = hosts_of(plan, link);
    pairs.insert(fmt::format("{} and {}", plan.hosts[upper].name, plan.hosts[lower].name));
    links.push_back(link.name);
    bytes += link.forward_bytes + link.backward_bytes;
  }
  if (links.empty()) return {};
  return fmt::format(
      "RELAYED: {} cannot reach each other, so {} {} through the launcher's host: {} of every step "
      "come in there and go out again, and a step takes {:.3g} s by forecast ({:.3g} s without the "
      "relay); open their ports to each other to avoid this",
      fmt::join(pairs, "; "), fmt::join(links, ", "), links.size() == 1 ? "goes" : "go",
      base::byte_text(bytes), step_seconds, plan.step_seconds);
}

}  // namespace strait::hosts

#include "launcher/hosts/route.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <set>

#include "launcher/base/text.h"

namespace strait::hosts {
namespace {

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
                    "TCP ports {}-{} to the "
                    "other hosts in "
                    "its firewall, or name an address that they reach in hosts.list",
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

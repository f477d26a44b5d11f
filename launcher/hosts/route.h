#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "framework/net/process_name.h"
#include "launcher/plan/plan.h"

namespace strait::hosts {

// The result of a probe: whether host `from` reaches host `to` at one of its addresses.
struct PathProbe {
  std::size_t from = 0;
  std::size_t to = 0;
  std::string address;
  std::string problem;          // empty: it does
  double seconds = 0;           // of a round trip
  double bytes_per_second = 0;  // from there; 0: not measured
};

// How the two ends of a link connect.
struct LinkRoute {
  std::string link;
  net::ProcessName binds;  // the end that listens; the other connects
  std::string address;     // where
  bool relayed = false;    // over the launcher's host: neither end reaches the other
};

// The probes that a plan needs: pairs of hosts with a link between them, in both directions.
std::vector<std::pair<std::size_t, std::size_t>> paths_to_probe(const plan::Plan& plan);

// For every link of the plan, in its order. The end that listens by plan does so if the other
// reaches it; else the ends change roles; else the link is relayed. Of several addresses the
// fastest, then the one with the shortest round trip is taken. Links inside a host, and the ends of
// relayed ones, stay on loopback. Pure.
std::vector<LinkRoute> choose_routes(const plan::Plan& plan, const std::vector<PathProbe>& tries);

// The best path from one host to another; null: no address answered. If rates and times are about
// the same, the first address is taken.
const PathProbe* best_probe(const std::vector<PathProbe>& tries, std::size_t from, std::size_t to);

// A sentence for each host that no other reaches, with what to open.
std::vector<std::string> blocked_hosts(const plan::Plan& plan, const std::vector<PathProbe>& tries);

// Which links are relayed and what that costs; empty: none. `step_seconds`: forecast with the
// relay.
std::string relay_warning(const plan::Plan& plan, const std::vector<LinkRoute>& routes,
                          double step_seconds);

}  // namespace strait::hosts

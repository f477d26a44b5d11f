#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "framework/net/process_name.h"
#include "launcher/plan/plan.h"

namespace strait::reach {

// Whether host `from` reaches host `to` at one of its addresses, as it was tried.
struct PathProbe {
  std::size_t from = 0;
  std::size_t to = 0;
  std::string address;
  std::string trouble;          // why not; empty: it does
  double seconds = 0;           // of a round trip
  double bytes_per_second = 0;  // from there; 0: not measured
};

// How the two ends of a link meet.
struct LinkRoute {
  std::string link;
  net::ProcessName binds;  // who listens; the other connects
  std::string address;     // where
  bool relayed = false;    // over the launcher's host: neither reaches the other
};

// What has to be tried for a plan: pairs of hosts with a link between them, both ways.
std::vector<std::pair<std::size_t, std::size_t>> paths_to_probe(const plan::Plan& plan);

// For every link of the plan, in its order. Whoever the plan has listen does if the other reaches
// it; else it is the other way round; else they are relayed. Of several addresses the fastest, then
// the nearest is taken. Links inside a host, and the ends of relayed ones, stay on loopback. Pure.
std::vector<LinkRoute> choose_routes(const plan::Plan& plan, const std::vector<PathProbe>& tries);

// The best of the tries from one host to another; null: none got there. Rates and times that are
// about the same do not decide; then the first one does.
const PathProbe* best_probe(const std::vector<PathProbe>& tries, std::size_t from, std::size_t to);

// Hosts that let nobody in, a sentence each with what to open.
std::vector<std::string> blocked_hosts(const plan::Plan& plan, const std::vector<PathProbe>& tries);

// Who is relayed and what that costs, loudly; empty: nobody. `step_seconds`: with the relay,
// by forecast.
std::string relay_warning(const plan::Plan& plan, const std::vector<LinkRoute>& routes,
                          double step_seconds);

}  // namespace strait::reach

#pragma once

#include <functional>
#include <string>
#include <vector>

#include "launcher/plan/plan.h"
#include "launcher/reach/reach_client.h"
#include "launcher/recipe/links.h"

namespace strait::app {

struct ProbeOptions {
  double flow_seconds = 4;  // of each measurement of bandwidth
  int connections = 4;      // side by side, beside one alone
  int echoes = 60;
  std::function<void(const std::string&)> say;  // a line for the user; always there
};

struct Probed {
  recipe::LinkTable table;
  std::vector<std::string> gaps;  // what could not be measured, and why
};

// Measures every pair of the plan's hosts, latency and bandwidth both ways, by one connection and
// by several, in rounds in which each host has one partner; then, on idle links, how
// fast each computes a layer at the recipe's sizes with the planned threads, and copies memory.
// `addresses`: where each host may be reached.
Probed probe_hosts(reach::ReachClient& reach, const plan::Plan& plan,
                   const std::vector<std::vector<std::string>>& addresses,
                   const ProbeOptions& options);

}  // namespace strait::app

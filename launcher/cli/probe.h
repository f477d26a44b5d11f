#pragma once

#include <functional>
#include <string>
#include <vector>

#include "launcher/hosts/reach_client.h"
#include "launcher/plan/plan.h"
#include "launcher/recipe/links.h"

namespace strait::cli {

struct ProbeOptions {
  double flow_seconds = 4;                        // of each measurement of bandwidth
  int connections = 4;                            // of the parallel measurement
  std::function<void(const std::string&)> print;  // prints a line; never empty
};

struct Probed {
  recipe::LinkTable table;
  std::vector<std::string> gaps;  // measurements that failed, with the cause
};

// Measures every pair of the plan's hosts, latency and bandwidth in both directions, with one
// connection and with several, in rounds in which each host has one partner. Then, on idle links,
// measures how fast each host computes a layer at the recipe's sizes with the planned threads, and
// copies memory. `addresses`: candidate addresses of each host.
Probed probe_hosts(hosts::ReachClient& reach, const plan::Plan& plan,
                   const std::vector<std::vector<std::string>>& addresses,
                   const ProbeOptions& options);

}  // namespace strait::cli

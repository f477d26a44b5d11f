#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace strait::recipe {

// What was measured of one host; 0: not.
struct MeasuredHost {
  std::string name;             // as the recipe calls it
  double flops_per_second = 0;  // of a layer's forward
  double backward = 0;          // how many times the forward's time a backward takes
  std::int64_t threads = 1;     // that computed
  double memory_bytes_per_second = 0;
  bool operator==(const MeasuredHost&) const = default;
};

// What was measured from one host to another. Both directions are lines of their own; what is said
// of one direction only holds for the other too.
struct MeasuredLink {
  std::string from;  // hosts, as the recipe calls them
  std::string to;
  double bits_per_second = 0;        // of one connection's payload
  double flows_bits_per_second = 0;  // of several side by side; 0: not measured
  double seconds = 0;                // one way
  bool operator==(const MeasuredLink&) const = default;
};

// What `hosts.links` names: speeds that forecasts go by in place of assumed ones.
struct LinkTable {
  std::vector<MeasuredHost> hosts;
  std::vector<MeasuredLink> links;

  bool empty() const { return hosts.empty() && links.empty(); }
  const MeasuredHost* host(const std::string& name) const;  // null: not measured
  const MeasuredLink* link(const std::string& from, const std::string& to) const;
  bool operator==(const LinkTable&) const = default;
};

}  // namespace strait::recipe

#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "launcher/control/run_observer.h"

namespace strait::console {

// Mbit/s of each link, both directions together, between the last two reports. Pure.
class LinkRates {
 public:
  void add(const std::vector<control::ProcessReport>& reports,
           std::chrono::steady_clock::time_point now);

  // By link name, in order; links that nothing was measured of are absent.
  std::vector<std::pair<std::string, double>> megabits() const;

 private:
  struct Seen {
    std::uint64_t sent = 0;
    std::chrono::steady_clock::time_point when;
  };
  std::map<std::pair<std::string, net::ProcessName>, Seen> ends_;
  std::map<std::string, double> rates_;
};

}  // namespace strait::console

#pragma once

#include "launcher/run/run_observer.h"

namespace strait::cli {

// Mbit/s of each link, both directions together, between the last two reports. Pure.
class LinkRates {
 public:
  void add(const std::vector<run::ProcessReport>& reports,
           std::chrono::steady_clock::time_point now);

  // Of the measured links, by name.
  std::vector<std::pair<std::string, double>> megabits() const;
  // "0>1 43.1 Mbit/s" of the first few, and how many more there are.
  std::vector<std::string> labels() const;

 private:
  struct Seen {
    std::uint64_t sent = 0;
    std::chrono::steady_clock::time_point when;
  };
  std::map<std::pair<std::string, net::ProcessName>, Seen> ends_;
  std::map<std::string, double> rates_;
};

}  // namespace strait::cli

#include "launcher/reach/probe_rounds.h"

#include <algorithm>

namespace strait::reach {

// The timetable of a tournament: one seat stays, all others move on by one from round to round, and
// who sits opposite is whom one meets. With an odd number of hosts one seat is empty.
std::vector<std::vector<HostPair>> probe_rounds(std::size_t hosts) {
  std::vector<std::vector<HostPair>> rounds;
  if (hosts < 2) return rounds;
  const std::size_t seats = hosts + hosts % 2;
  const std::size_t moving = seats - 1;
  for (std::size_t round = 0; round < moving; ++round) {
    std::vector<HostPair> pairs;
    for (std::size_t i = 0; i < seats / 2; ++i) {
      const std::size_t one = i == 0 ? moving : (round + i) % moving;
      const std::size_t other = (round + moving - i) % moving;
      if (one < hosts && other < hosts)
        pairs.emplace_back(std::min(one, other), std::max(one, other));
    }
    if (!pairs.empty()) rounds.push_back(std::move(pairs));
  }
  return rounds;
}

}  // namespace strait::reach

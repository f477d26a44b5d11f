#include "framework/trace/align_clocks.h"

#include <algorithm>
#include <deque>
#include <map>
#include <utility>

namespace strait::trace {

std::vector<double> align_clocks(const std::vector<double>& guesses,
                                 std::span<const ClockedMessage> messages) {
  std::map<std::pair<std::size_t, std::size_t>, double> fastest;
  for (const ClockedMessage& message : messages) {
    const double seen = message.received - message.sent;
    const auto [known, added] = fastest.emplace(std::pair{message.from, message.to}, seen);
    if (!added) known->second = std::min(known->second, seen);
  }
  std::vector<double> offsets = guesses;
  std::vector<bool> reached(guesses.size(), false);
  for (std::size_t first = 0; first < guesses.size(); ++first) {
    if (reached[first]) continue;
    reached[first] = true;
    for (std::deque<std::size_t> open = {first}; !open.empty(); open.pop_front()) {
      const std::size_t from = open.front();
      for (std::size_t to = 0; to < guesses.size(); ++to) {
        const auto there = fastest.find({from, to});
        const auto back = fastest.find({to, from});
        if (reached[to] || there == fastest.end() || back == fastest.end()) continue;
        reached[to] = true;
        offsets[to] = offsets[from] - (there->second - back->second) / 2;
        open.push_back(to);
      }
    }
  }
  return offsets;
}

}  // namespace strait::trace

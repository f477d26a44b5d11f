#pragma once

#include <cstddef>
#include <utility>
#include <vector>

namespace strait::reach {

using HostPair = std::pair<std::size_t, std::size_t>;  // the lower index first

// Every pair of so many hosts once, in as few rounds as there can be, so that no host is in two
// pairs of a round: what a round measures at the same time does not disturb itself.
std::vector<std::vector<HostPair>> probe_rounds(std::size_t hosts);

}  // namespace strait::reach

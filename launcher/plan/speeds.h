#pragma once

#include <functional>

#include <cstddef>
#include <functional>

#include <cstdint>

#include <functional>

#include "launcher/plan/plan.h"

namespace strait::plan {

// What forecasts go by where nobody has measured, and the recipe says nothing.
inline constexpr double kAssumedFlopsPerThread = 2e10;
inline constexpr double kAssumedBackwardCost = 2.0;            // of a forward
inline constexpr double kAssumedLinkBytesPerSecond = 4e9 / 8;  // CURVE over loopback

inline constexpr double kAssumedMemoryBytesPerSecond = 2e10;  // read and written

struct PathSpeed {
  double bytes_per_second = kAssumedLinkBytesPerSecond;
  double seconds = 0;  // one way
  bool measured = false;
};

// From one of the plan's hosts to another, or between two processes of the same: as measured
// (plan.speeds), as the recipe says (hosts.link_megabits), or as assumed.
PathSpeed path_speed(const Plan& plan, std::size_t from, std::size_t to);

// How fast a link is between two hosts of the plan.
using PathSpeeds =
    std::function<PathSpeed(const Plan::Link& link, std::size_t from, std::size_t to)>;
// The same over a relay that so many links share: the bytes cross two paths, one after the other.
PathSpeed relayed_speed(const PathSpeed& direct, std::size_t links);

struct ComputeSpeed {
  double flops_per_second = kAssumedFlopsPerThread;
  double backward = kAssumedBackwardCost;  // times the forward's time
  bool measured = false;
};

// Of a process with so many threads there.
ComputeSpeed compute_speed(const Plan& plan, std::size_t host, std::int64_t threads);

// Bytes per second that one of the plan's hosts copies in memory.
double copy_speed(const Plan& plan, std::size_t host);

}  // namespace strait::plan

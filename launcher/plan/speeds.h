#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "launcher/plan/plan.h"

namespace strait::plan {

// Speeds that forecasts use: measured ones (hosts.links of the recipe), else those that the recipe
// states, else these.
inline constexpr double kAssumedFlopsPerThread = 2e10;
inline constexpr double kAssumedBackwardCost = 2.0;            // relative to a forward
inline constexpr double kAssumedLinkBytesPerSecond = 4e9 / 8;  // CURVE over loopback
inline constexpr double kAssumedMemoryBytesPerSecond = 2e10;   // read and written
// A pass takes as long as if it had so many tokens more. Measured on CPUs (layers 256 to 1536
// wide); assumed of GPUs.
inline constexpr std::int64_t kPassTokensOfCpu = 24;
inline constexpr std::int64_t kAssumedPassTokensOfGpu = 512;

struct PathSpeed {
  double bytes_per_second = kAssumedLinkBytesPerSecond;
  double seconds = 0;  // one-way latency
  bool measured = false;
};

// Between two hosts of the plan, or two processes on one: as simulated (hosts.simulate), as
// measured (plan.speeds), as the recipe states (hosts.link_megabits), or as assumed.
PathSpeed path_speed(const Plan& plan, std::size_t from, std::size_t to);

// The speed of a link between two hosts of the plan.
using PathSpeeds =
    std::function<PathSpeed(const Plan::Link& link, std::size_t from, std::size_t to)>;
// A path over a relay that `links` links share: bytes cross two paths, so latency doubles.
PathSpeed relayed_speed(const PathSpeed& direct, std::size_t links);

struct ComputeSpeed {
  double flops_per_second = kAssumedFlopsPerThread;
  double backward = kAssumedBackwardCost;  // duration relative to a forward
  bool measured = false;
};

bool computes_on_gpus(const Plan& plan, std::size_t host);

// Of one of `processes` with this number of threads each on a host. No more threads run at a time
// than the host has cores, where these are known. On a GPU threads do not matter, and processes
// that share one are forecast as if each had it alone.
ComputeSpeed compute_speed(const Plan& plan, std::size_t host, std::int64_t threads,
                           std::int64_t processes = 1);
// Of a process of the plan.
ComputeSpeed compute_speed(const Plan& plan, const Plan::Process& process);

// Bytes per second that a host copies in memory.
double copy_speed(const Plan& plan, std::size_t host);

}  // namespace strait::plan

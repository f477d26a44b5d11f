#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "launcher/plan/plan.h"

namespace strait::plan {

// Speeds for forecasts: measured ones (hosts.links of the recipe), else those that the recipe
// states (tflops of a host, hosts.link_megabits), else these.
inline constexpr double kAssumedFlopsPerThread = 2e10;
// What training reaches on a GPU of a desktop: an RTX 4090 reaches about twice as much, a T4 half.
inline constexpr double kAssumedFlopsOfGpu = 6e13;  // in bfloat16
inline constexpr double kAssumedFlopsOfGpuInFloat32 = 1.5e13;
inline constexpr double kAssumedBackwardCost = 2.0;            // relative to a forward
inline constexpr double kAssumedLinkBytesPerSecond = 4e9 / 8;  // CURVE over loopback
inline constexpr double kAssumedMemoryBytesPerSecond = 2e10;   // read and written
// Fixed cost of a pass: it takes as long as this number of tokens. Measured on CPUs with layers 256
// to 1536 wide; assumed for GPUs.
inline constexpr std::int64_t kPassTokensOfCpu = 24;
inline constexpr std::int64_t kAssumedPassTokensOfGpu = 512;

struct PathSpeed {
  double bytes_per_second = kAssumedLinkBytesPerSecond;
  double seconds = 0;  // one-way latency
  bool measured = false;
  bool stated = false;  // by the recipe, also as simulated
};

// Speed between two hosts of the plan, or two processes of one host: simulated (hosts.simulate),
// measured (plan.speeds), stated by the recipe (hosts.link_megabits), or assumed.
PathSpeed path_speed(const Plan& plan, std::size_t from, std::size_t to);

// The speed of a link between two hosts of the plan.
using PathSpeeds =
    std::function<PathSpeed(const Plan::Link& link, std::size_t from, std::size_t to)>;
// A path through a relay that `links` links share. Bytes cross two paths, so latency doubles.
PathSpeed relayed_speed(const PathSpeed& direct, std::size_t links);

struct ComputeSpeed {
  double flops_per_second = kAssumedFlopsPerThread;
  double backward = kAssumedBackwardCost;  // duration relative to a forward
  bool measured = false;
  bool stated = false;  // by the recipe
};

bool computes_on_gpus(const Plan& plan, std::size_t host);

// Speed of one of `processes` processes on a host, each with this number of threads. At most as
// many threads run at a time as the host has cores, if these are known. On a GPU threads do not
// matter; processes that share a GPU are forecast as if each had it alone.
ComputeSpeed compute_speed(const Plan& plan, std::size_t host, std::int64_t threads,
                           std::int64_t processes = 1);
// Speed of a process of the plan.
ComputeSpeed compute_speed(const Plan& plan, const Plan::Process& process);

// Bytes per second at which a host copies memory.
double copy_speed(const Plan& plan, std::size_t host);

}  // namespace strait::plan

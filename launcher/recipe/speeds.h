#pragma once

#include "launcher/recipe/plan.h"

namespace strait::plan {

// Speeds for forecasts: measured ones (hosts.links of the recipe), else those that the recipe
// states (tflops or device of a host, its uplink, hosts.link_megabits), else these.
inline constexpr double kAssumedFlopsPerThread = 2e10;
// Of a GPU whose name is not known: what training reaches on one of a desktop.
inline constexpr double kAssumedFlopsOfGpu = 6e13;  // in bfloat16
inline constexpr double kAssumedFlopsOfGpuInFloat32 = 1.5e13;
inline constexpr double kAssumedBackwardCost = 2.0;         // relative to a forward
inline constexpr double kLoopbackBytesPerSecond = 4e9 / 8;  // CURVE; also the most of any path
// A link in shared memory: what the thread of a link copies and checks at each end.
inline constexpr double kMemoryLinkBytesPerSecond = 16e9 / 8;
// Between hosts of which nothing is known: the line of an office. A wide one has to be stated or
// measured before a plan uses it, so that no layout is chosen for a line that is not there.
inline constexpr double kAssumedLineBytesPerSecond = 1e8 / 8;
inline constexpr double kAssumedLineSeconds = 0.01;           // one way
inline constexpr double kAssumedMemoryBytesPerSecond = 2e10;  // read and written
inline constexpr double kAssumedMemoryOfGpu = 1e12;           // the same
// Between a GPU and pinned memory of its host: PCIe 3.0 x16, or 4.0 x8 as in many desktops.
inline constexpr double kAssumedPcieBytesPerSecond = 1.2e10;
inline constexpr double kAssumedDiskBytesPerSecond = 2e9;  // NVMe, read and written
// Fixed cost of a pass: it takes as long as this number of tokens. Measured on CPUs with layers 256
// to 1536 wide; assumed for GPUs.
inline constexpr std::int64_t kPassTokensOfCpu = 24;
inline constexpr std::int64_t kAssumedPassTokensOfGpu = 512;

struct PathSpeed {
  double bytes_per_second = kLoopbackBytesPerSecond;  // of one link, with the flows that it opens
  double seconds = 0;                                 // one-way latency
  bool measured = false;
  bool stated = false;     // by the recipe, also as simulated
  bool in_memory = false;  // of one host: nothing is encrypted
  // What the sender's line and the receiver's have for all of their paths together, as far as this
  // path shows: a message takes its share of both.
  double uplink = kLoopbackBytesPerSecond;
  double downlink = kLoopbackBytesPerSecond;
};

// Speed between two hosts of the plan, or two processes of one host: simulated (hosts.simulate),
// measured (plan.speeds) within the lines that the recipe states, stated, or assumed.
PathSpeed path_speed(const Plan& plan, std::size_t from, std::size_t to);
// Whether a link asks for shared memory: both ends are on one host, and it is not simulated.
bool shares_memory(const Plan& plan, const Plan::Link& link);
// Whether a path between two hosts is neither measured, simulated nor stated.
bool assumes_lines(const Plan& plan);

// The speed of a link between two hosts of the plan.
using PathSpeeds =
    std::function<PathSpeed(const Plan::Link& link, std::size_t from, std::size_t to)>;
// By path_speed(); `plan` outlives it.
PathSpeeds direct_speeds(const Plan& plan);
// A path through a relay that `links` links share. Bytes cross two paths, so latency doubles.
PathSpeed relayed_speed(const PathSpeed& direct, std::size_t links);

// The line of a host as the recipe states it, in bytes per second.
struct StatedLine {
  std::optional<double> up;
  std::optional<double> down;
};
StatedLine stated_line(const Plan& plan, std::size_t host);

struct ComputeSpeed {
  double flops_per_second = kAssumedFlopsPerThread;
  double backward = kAssumedBackwardCost;  // duration relative to a forward
  bool measured = false;
  bool stated = false;  // by the recipe
};

// Also where the recipe alone says so: a device by name or number, or model.device = "cuda".
bool computes_on_gpus(const Plan& plan, std::size_t host);

// The published peak of a GPU by its name, in operations a second, for a run of this type; 0: it is
// not known.
double published_flops(std::string_view device, recipe::Dtype dtype);

// Speed of one of `processes` processes on a host that all compute, each with this number of
// threads. At most as many threads run at a time as the host has cores, if these are known. On a
// GPU threads do not matter; each process is forecast as if it had one alone.
ComputeSpeed compute_speed(const Plan& plan, std::size_t host, std::int64_t threads,
                           std::int64_t processes = 1);
// Speed of a process of the plan, as if it had its host alone.
ComputeSpeed compute_speed(const Plan& plan, const Plan::Process& process);

// Whether other programs slowed the measurement down: the host is faster than that.
inline bool measured_under_load(const recipe::MeasuredHost& host) {
  constexpr double kMostWaited = 0.05;
  return host.waited > kMostWaited;
}

// "300 Mbit/s", "1.2 Gbit/s".
std::string text_of_rate(double bytes_per_second);

// Bytes per second at which a host copies memory, or its GPUs theirs.
double copy_speed(const Plan& plan, std::size_t host);

}  // namespace strait::plan

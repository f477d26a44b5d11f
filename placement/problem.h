#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

// Which device computes which layers: the question, as plain values. Seconds, bytes, operations.
namespace strait::placement {

inline constexpr double kUnlimited = std::numeric_limits<double>::infinity();

// The line of a host to all others, shared by everything that its devices send and receive.
struct Line {
  double up_bytes_per_second = kUnlimited;
  double down_bytes_per_second = kUnlimited;
};

// What computes one stage: a GPU, or a host's CPU.
struct Device {
  std::size_t host = 0;
  double flops_per_second = 1;
  double memory_bytes = kUnlimited;
  double updates_per_second = kUnlimited;  // parameters that the end of a step changes
};

// From one host to another.
struct Path {
  double bytes_per_second = kUnlimited;
  double seconds = 0;  // one-way latency
};

// A block of the model, in one micro-batch.
struct Layer {
  double flops = 0;        // of its forward and backward
  double state_bytes = 0;  // weights, gradients, moments
  double saved_bytes = 0;  // kept from a forward for its backward
  double sync_bytes = 0;   // that replicas reduce in a step
  double updated = 0;      // parameters that the end of a step changes
};

struct Problem {
  std::vector<Line> hosts;
  std::vector<Device> devices;
  std::vector<Path> paths;  // hosts x hosts, by sender, then receiver
  std::vector<Layer> layers;
  double forward_bytes = 0;        // of a micro-batch over a boundary between stages
  double backward_bytes = 0;       // its gradient
  bool duplex = true;              // a path carries both directions at the same time
  bool sync_overlaps = false;      // compute hides the rounds of replicas
  double rounds = 1;               // of replicas in a step; below 1: not in each
  bool agrees_each_step = true;    // replicas wait for one message of all others
  std::int64_t micro_batches = 1;  // of a step, all replicas together
  // A device holds the saved bytes of this number of micro-batches at the most.
  std::int64_t most_held = std::numeric_limits<std::int64_t>::max();
  std::optional<int> stages = std::nullopt;    // absent: chosen
  std::optional<int> replicas = std::nullopt;  // absent: chosen

  const Path& path(std::size_t from_host, std::size_t to_host) const {
    return paths[from_host * hosts.size() + to_host];
  }
};

// Layers [first, second) of a stage.
using LayerSpan = std::pair<int, int>;

// An answer. Every replica cuts the layers alike.
struct Layout {
  int stages = 1;
  int replicas = 1;
  std::vector<std::size_t> devices;  // by replica, then by stage
  std::vector<LayerSpan> cut;        // by stage

  std::size_t device(int replica, int stage) const {
    return devices[static_cast<std::size_t>(replica) * static_cast<std::size_t>(stages) +
                   static_cast<std::size_t>(stage)];
  }
  bool operator==(const Layout&) const = default;
};

// What a step takes longest for.
enum class Critical { compute, path, sync, line };

// Seconds of a step, and what sets them.
struct Cost {
  double seconds = kUnlimited;  // unlimited: it does not fit into memory
  double pipeline_seconds = 0;  // of the slowest replica, with its update
  double sync_seconds = 0;      // of the slowest stage; in addition unless compute hides it
  double line_seconds = 0;      // of the host whose line carries most
  Critical critical = Critical::compute;
  std::size_t critical_device = 0;  // that computes, or sends; for a line one of its host
};

// A step of this layout. The model: a micro-batch passes all stages and returns, and the others
// follow at the pace of the slowest stage or path, as with a depth that hides latency. Then all
// stages make their updates at the same time, and the replicas of a stage exchange shards with each
// other twice, as sync::Pattern::shard_reduce does. A line carries everything of its host. Pure.
Cost cost_of(const Problem& problem, const Layout& layout);

}  // namespace strait::placement

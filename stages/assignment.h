#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

// What a partition is asked, and what it answers: layers to stages, stages to hosts. Public: who
// installed strait includes it with <strait/partition.h>. Plain values; standard library only.
namespace strait::partition {

struct Layer {
  std::string name;  // "embedding", "block 3", "head"
  std::int64_t parameters = 0;
  double forward_flops_per_token = 0;       // a backward takes twice as many
  std::int64_t saved_bytes_per_token = 0;   // kept from a forward for its backward
  std::int64_t output_bytes_per_token = 0;  // crosses a boundary behind it, before any codec
  // Of a micro-batch, on a host of average speed with a stage of its own: as links.toml has
  // measured hosts, which Host::seconds_per_flop tells, and else as plans assume of a host's cores.
  std::optional<double> forward_seconds = std::nullopt;
};

// Layers are called by their place in here: 0 is the embedding, the last is the head.
struct ModelDescription {
  std::string family;  // "gpt2"
  std::vector<Layer> layers;
  std::int64_t tied_parameters = 0;  // of a weight that embedding and head share: where they are on
                                     // two stages, both hold it
};

struct Host {
  std::string name;
  int slots = 1;                  // stages that it still takes
  int cores = 1;                  // of all its stages together
  std::int64_t memory_bytes = 0;  // that its next stages may take; 0: unknown, no limit
  // By all its cores; absent: nobody has measured it.
  std::optional<double> seconds_per_flop = std::nullopt;
};

// From one host to another, where somebody has measured it.
struct Link {
  std::size_t from = 0;
  std::size_t to = 0;
  double bits_per_second = 0;
  double latency_seconds = 0;
};

struct Cluster {
  std::vector<Host> hosts;
  std::vector<Link> links;
};

// Both ends belong to it.
struct Layers {
  int first = 0;
  int last = -1;
  bool operator==(const Layers&) const = default;
};

struct Stage {
  std::vector<Layers> chunks;  // as many as Question::chunks; mostly one
  // Its place in Cluster::hosts; absent: the next that has a slot.
  std::optional<std::size_t> host = std::nullopt;
};

struct Assignment {
  std::vector<Stage> stages;
};

// All that is known when a pipeline is cut. Asked once for every replica, in their order: the
// layers must be the same for all, the hosts need not.
struct Question {
  ModelDescription model;
  Cluster cluster;  // without what earlier replicas took of it
  int stages = 1;
  int chunks = 1;  // of every stage: pipeline.chunks, or what the schedule is used with. Data
                   // passes the first ones of all stages, then their second ones, and so on.
  int replicas = 1;
  int replica = 0;
  std::int64_t micro_batch_tokens = 1;
  std::int64_t bytes_per_parameter = 16;  // value, gradient and the optimizer's moments
  // By stage: micro-batches held at once, at the most; those in several chunks count in each.
  std::vector<int> in_flight;

  // Memory that this stage would take: what the check holds against Host::memory_bytes. Of several
  // chunks, every micro-batch that is held counts as if it were in the one that keeps most.
  std::int64_t stage_bytes(std::size_t stage, const std::vector<Layers>& of_stage) const {
    std::int64_t parameters = 0;
    std::int64_t saved_per_token = 0;  // of a chunk
    bool has_embedding = false;
    bool has_head = false;
    for (const Layers& chunk : of_stage) {
      std::int64_t saved = 0;
      for (int i = chunk.first; i <= chunk.last; ++i) {
        const Layer& layer = model.layers.at(static_cast<std::size_t>(i));
        parameters += layer.parameters;
        saved += layer.saved_bytes_per_token;
        has_embedding = has_embedding || i == 0;
        has_head = has_head || i + 1 == static_cast<int>(model.layers.size());
      }
      if (saved > saved_per_token) saved_per_token = saved;
    }
    if (has_head && !has_embedding) parameters += model.tied_parameters;
    return parameters * bytes_per_parameter +
           saved_per_token * micro_batch_tokens * in_flight.at(stage);
  }
};

// What a plugin writes. A pure function: the launcher may ask more than once. What it throws is
// shown to the user.
using Partition = std::function<Assignment(const Question&)>;

}  // namespace strait::partition

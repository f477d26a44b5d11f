#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

// Input and output of a partition, which assigns layers to stages and stages to hosts. Public:
// installed as part of <strait/partition.h>. Plain values; standard library only.
namespace strait::partition {

struct Layer {
  std::string name;  // "embedding", "block 3", "head"
  std::int64_t parameters = 0;
  double forward_flops_per_token = 0;
  std::int64_t saved_bytes_per_token = 0;   // kept from a forward for its backward
  std::int64_t output_bytes_per_token = 0;  // sent over a boundary after it, before any codec
  // Of a micro-batch, on a host of average speed that runs one stage. Speeds are
  // Host::seconds_per_flop if links.toml has them; otherwise they follow from the hosts' cores. For
  // "profile" this is measured, and backward_factor is the ratio of backward to forward time.
  std::optional<double> forward_seconds = std::nullopt;
  std::int64_t frozen_parameters = 0;     // of `parameters`
  double backward_factor = 2;             // operations of the backward per operation of the forward
  std::int64_t quantized_parameters = 0;  // of `frozen_parameters`
  std::int64_t quantized_bytes = 0;       // bytes of these, with their scales
  // Needed while the layer computes, in addition to what it keeps: its largest matrix dequantised,
  // or for the LM head the logits of the loss.
  std::int64_t working_bytes = 0;
};

// A layer's number is its index in `layers`: 0 is the embedding, the last one is the LM head.
struct ModelDescription {
  std::string family;  // "gpt2"
  std::vector<Layer> layers;
  // Parameters of a table that embedding and LM head share, counted in the embedding. If they are
  // on two stages, the stage of the LM head holds it.
  std::int64_t tied_parameters = 0;
  bool tied_trained = true;  // otherwise both stages hold a copy
};

struct Host {
  std::string name;
  int slots = 1;                  // free slots, one per stage
  int cores = 1;                  // shared by all its stages
  std::int64_t memory_bytes = 0;  // free memory; 0: unknown, no limit
  // Free memory of each of its GPUs; 0: unknown, no limit. Empty: stages compute in host memory.
  // Stages take the GPUs in turn; the first stage of this replica takes number next_gpu.
  std::vector<std::int64_t> gpu_bytes = {};
  std::size_t next_gpu = 0;
  std::int64_t gpu_process_bytes = 0;  // of its GPU: taken by each stage process in addition
  // With all its cores; absent: not measured.
  std::optional<double> seconds_per_flop = std::nullopt;
};

// The measured link from one host to another.
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

// A range of layers, both ends inclusive.
struct Layers {
  int first = 0;
  int last = -1;
  bool operator==(const Layers&) const = default;
};

struct Stage {
  std::vector<Layers> chunks;  // Question::chunks of them, usually one
  // Index in Cluster::hosts; absent: the next host with a free slot.
  std::optional<std::size_t> host = std::nullopt;
};

struct Assignment {
  std::vector<Stage> stages;
};

// The input for one replica. Partitions are called once per replica, in order. Layers must be the
// same for all replicas; hosts may differ.
struct Question {
  ModelDescription model;
  Cluster cluster;  // without the slots and memory that earlier replicas use
  int stages = 1;
  // Per stage: pipeline.chunks, or the schedule's default. Data passes the first chunks of all
  // stages, then their second chunks, and so on.
  int chunks = 1;
  int replicas = 1;
  int replica = 0;
  std::int64_t micro_batch_tokens = 1;
  std::int64_t bytes_per_parameter = 16;  // value, gradient and the optimizer's moments
  std::int64_t bytes_per_frozen_parameter = 4;
  // By stage: the most micro-batches held at once. One that is held in several chunks counts in
  // each of them.
  std::vector<int> in_flight;

  // Memory of this stage, to be compared with Host::memory_bytes or a GPU's. With several chunks,
  // every micro-batch counts as if it were held in the chunk that keeps most for it.
  std::int64_t stage_bytes(std::size_t stage, const std::vector<Layers>& of_stage) const {
    std::int64_t parameters = 0;
    std::int64_t frozen = 0;
    std::int64_t quantized = 0;  // bytes
    std::int64_t working = 0;
    std::int64_t saved_per_token = 0;  // of a chunk
    bool has_embedding = false;
    bool has_head = false;
    for (const Layers& chunk : of_stage) {
      std::int64_t saved = 0;
      for (int i = chunk.first; i <= chunk.last; ++i) {
        const Layer& layer = model.layers.at(static_cast<std::size_t>(i));
        parameters += layer.parameters;
        parameters -= layer.quantized_parameters;
        frozen += layer.frozen_parameters - layer.quantized_parameters;
        quantized += layer.quantized_bytes;
        if (layer.working_bytes > working) working = layer.working_bytes;
        saved += layer.saved_bytes_per_token;
        has_embedding = has_embedding || i == 0;
        has_head = has_head || i + 1 == static_cast<int>(model.layers.size());
      }
      if (saved > saved_per_token) saved_per_token = saved;
    }
    const std::int64_t moved = has_head == has_embedding ? 0 : model.tied_parameters;
    std::int64_t second_sum = 0;  // of the tied table's gradient
    if (model.tied_trained) {
      if (has_head && has_embedding) second_sum = 4 * model.tied_parameters;
      parameters += has_head ? moved : -moved;
    } else if (has_head) {
      parameters += moved;
      frozen += moved;
    }
    return (parameters - frozen) * bytes_per_parameter + frozen * bytes_per_frozen_parameter +
           second_sum + quantized + working +
           saved_per_token * micro_batch_tokens * in_flight.at(stage);
  }
};

// The function of a plugin. It must be pure: the launcher may call it more than once. The message
// of its exceptions is shown to the user.
using Partition = std::function<Assignment(const Question&)>;

}  // namespace strait::partition

#pragma once

#include <map>
#include <vector>

#include "models/model.h"
#include "stages/ports.h"

namespace strait::stages {

struct ChunkOptions {
  std::uint64_t seed = 0;
  std::int32_t first_micro_batch = 0;  // of this replica: keeps replicas' dropout apart
  bool recompute = false;  // keep only every layer's input, run it again for its backward
};

// A run of layers and what their forwards keep for their backwards. Knows micro-batches, not where
// tensors come from or go to. Used by the compute thread alone.
class Chunk {
 public:
  Chunk(models::Model& model, const ChunkOptions& options) : model_(model), options_(options) {}

  // In training, keeps what backward() of the same micro-batch needs.
  Flow forward(const Phase& phase, MicroBatch micro_batch, const Flow& input);

  // The gradient of the input; undefined where the input was tokens. Parameter gradients are added
  // to the leaves' .grad. Each micro-batch once, in index order: sums of floats depend on it.
  at::Tensor backward(MicroBatch micro_batch, at::Tensor gradient);

  models::Model& model() { return model_; }

 private:
  // Layers that run under one autograd graph: all of them, or one at a time when recomputing.
  struct Segment {
    std::size_t first;
    std::size_t count;
  };
  struct Kept {
    models::Pass pass;
    std::vector<at::Tensor> inputs;   // one per segment
    std::vector<at::Tensor> outputs;  // likewise; empty when recomputing
  };

  std::vector<Segment> segments() const;
  at::Tensor run(const Segment& segment, at::Tensor values, const models::Pass& pass) const;

  models::Model& model_;
  ChunkOptions options_;
  std::map<MicroBatch, Kept> kept_;
};

}  // namespace strait::stages

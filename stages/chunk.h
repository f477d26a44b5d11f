#pragma once

#include "kernels/weight_gradient_queue.h"
#include "models/expert_load.h"
#include "models/model.h"
#include "models/slice_keys.h"
#include "stages/activation_offload.h"
#include "stages/frozen_rows.h"
#include "stages/ports.h"

namespace strait::stages {

struct ChunkOptions {
  std::uint64_t seed = 0;
  std::int32_t first_micro_batch = 0;  // of this replica; every replica has its own dropout masks
  bool recompute = false;        // keep only the inputs of layers, and repeat forwards in backwards
  int first_trained_layer = 0;   // no layer before it has a backward
  bool splits_backward = false;  // weight_gradients() is called after every backward()
  std::int64_t micro_batches = 1;        // of a step, over all replicas
  int slices = 1;                        // of each in training, numbered as in schedules::sliced()
  double noise = 0;                      // Pass::noise in training
  FrozenRows* frozen_rows = nullptr;     // of the stage; null: every row is computed anew
  ActivationOffload* offload = nullptr;  // of the stage; null: activations stay on the device
};

// Consecutive layers, and what their forwards keep for their backwards. Independent of the ports.
// Used only by the compute thread.
class Chunk {
 public:
  Chunk(models::Model& model, const ChunkOptions& options) : model_(model), options_(options) {}

  // In training, keeps what backward() of this micro-batch needs, which is nothing if no layer up
  // to here is trained.
  Flow forward(const Phase& phase, MicroBatch micro_batch, const Flow& input);

  // Returns the gradient of the input; undefined for tokens, and if no earlier layer is trained.
  // Adds the parameters' gradients to the leaves' .grad. If backwards are split, those of large
  // weights are left out. Call once per micro-batch, in index order, because a sum of floats
  // depends on it; of its slices the last one first.
  at::Tensor backward(MicroBatch micro_batch, at::Tensor gradient);

  // Adds what a split backward left out. Call in the order of the backwards.
  void weight_gradients(MicroBatch micro_batch);

  models::Model& model() { return model_; }

  // The load of experts in training since the last call.
  models::ExpertLoad take_load() { return std::exchange(load_, {}); }

  bool has_backward() const { return options_.first_trained_layer <= model_.range().last; }
  // The stage's frozen rows, if they hold this micro-batch. Then the input of a chunk with the
  // first trained layer is their flow(), and a chunk below it has no forward. Null for chunks above
  // it.
  const FrozenRows* rows_that_hold(const Phase& phase, MicroBatch micro_batch) const;

 private:
  // Layers in one autograd graph: the trained ones with all above them, and the others; or one when
  // recomputing.
  struct Segment {
    std::size_t first;
    std::size_t count;
  };
  struct Kept {
    models::Pass pass;
    std::vector<at::Tensor> inputs;   // one per segment
    std::vector<at::Tensor> outputs;  // one per segment; empty when recomputing
    std::unique_ptr<ActivationOffload::Pass> offloaded = {};  // null: it stays on the device
  };

  // What later slices of a micro-batch need of earlier ones.
  struct Sliced {
    std::shared_ptr<models::SliceKeys> keys = std::make_shared<models::SliceKeys>();
    std::vector<std::int64_t> past;  // by row: tokens so far of its latest document
  };

  // Of the forward of a micro-batch, or of its next slice.
  models::Pass next_pass(const Phase& phase, MicroBatch micro_batch, const codec::Rows& rows);
  std::vector<Segment> segments() const;
  bool has_first_trained_layer() const {
    return has_backward() && options_.first_trained_layer >= model_.range().first;
  }
  // Layers before the first trained one, which is in this chunk.
  std::size_t frozen_layers() const {
    return static_cast<std::size_t>(options_.first_trained_layer - model_.range().first);
  }
  // Whether a layer before the segment is trained, so that its input needs a gradient.
  bool passes_gradient(const Segment& segment) const;
  bool has_backward(const Segment& segment) const;
  // The pass is of the segment from here on.
  at::Tensor run(const Segment& segment, at::Tensor values, models::Pass& pass) const;
  void backward(const Segment& segment, const models::Pass& pass, at::Tensor output,
                at::Tensor gradient) const;

  models::Model& model_;
  ChunkOptions options_;
  models::ExpertLoad load_;
  std::map<MicroBatch, Kept> kept_;
  std::map<std::int32_t, Sliced> sliced_;                      // by micro-batch
  std::map<MicroBatch, kernels::WeightGradientQueue> queues_;  // of split backwards
};

}  // namespace strait::stages

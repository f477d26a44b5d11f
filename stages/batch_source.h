#pragma once

#include "framework/codec/rows.h"
#include "framework/data/sample_order.h"
#include "framework/data/token_file.h"
#include "schedules/index.h"
#include "stages/step_messages.h"

namespace strait::stages {

struct BatchOptions {
  std::uint64_t seed = 0;
  std::int64_t replicas = 1;
  std::int64_t replica = 0;
  std::int64_t micro_batch_rows = 1;
  std::int64_t micro_batches = 1;  // of a training step, of each replica
  // The same if replicas differ, by replica; empty: all have micro_batches.
  std::vector<std::int64_t> micro_batches_by_replica = {};
  bool shuffle = true;
  bool preferences = false;  // the documents of rows are pairs
  // Of each micro-batch in training, numbered as in schedules::sliced(). Divides the row length.
  int slices = 1;
};

// Micro-batches of the replicas before this one, and of all.
std::int64_t micro_batches_before(const BatchOptions& options);
std::int64_t all_micro_batches(const BatchOptions& options);

// The order in which this replica visits the rows of a token file.
data::SampleOrderOptions sample_order_options(const BatchOptions& options, std::int64_t rows);

// The order in which boundaries see the rows of a step. A slice of a row is a sample of its own for
// them, because its activations are cached by themselves.
std::vector<store::SampleId> in_slices(const std::vector<store::SampleId>& samples,
                                       const BatchOptions& options);

// The samples of a micro-batch and their tokens: a pure function of the phase, so that the first
// and the last stage read the same ones without communication. Used by one thread.
//
// In training with slices, a micro-batch is a slice of one: its rows have a part of their samples'
// tokens. The first of their documents is the one that an earlier slice has begun, of no length if
// there is none.
class BatchSource {
 public:
  // `evaluation` is null if there is no evaluation.
  BatchSource(std::shared_ptr<const data::TokenFile> training,
              std::shared_ptr<const data::TokenFile> evaluation, const BatchOptions& options);

  std::vector<store::SampleId> samples(const Phase& phase, MicroBatch micro_batch) const;
  const data::TokenFile& file(const Phase& phase) const;
  codec::Rows rows(const Phase& phase, MicroBatch micro_batch) const;
  // The tokens of these rows in sequence, each row padded with token 0.
  std::vector<std::int64_t> padded_tokens(const Phase& phase, MicroBatch micro_batch) const;
  // A row of rows() in the data.
  struct RowPart {
    store::SampleId sample{};
    std::int64_t begin = 0;  // the place of its first token in the sample
    std::int64_t end = 0;    // the place after its last one, padding included
  };
  RowPart part_of(const Phase& phase, const codec::Row& row) const;
  // The micro-batch of the training step that has the backward with this number.
  MicroBatch with_backward(const Phase& phase, int number) const;

  // From now on evaluations are sharded over this many replicas; this one reads shard `index`.
  void shard_evaluation(std::size_t replicas, std::size_t index);

  bool preferences() const { return options_.preferences; }

  // All configured replicas, evicted ones included.
  std::size_t replicas() const { return static_cast<std::size_t>(options_.replicas); }

  // Target tokens of the whole step over all micro-batches and all configured replicas: the divisor
  // of the loss. Of preferences it is the number of pairs.
  std::int64_t target_tokens(const Phase& phase) const;
  // Target tokens of a training step of these replicas.
  std::int64_t target_tokens(store::Step step, const std::vector<std::uint32_t>& replicas) const;

 private:
  // The samples of a replica in a training step. Kept until it is asked for another step: each
  // micro-batch asks for some of them.
  const std::vector<store::SampleId>& samples_of(std::size_t replica, store::Step step) const;
  std::int64_t targets_of(const data::TokenFile& file, store::SampleId sample) const;
  int slices_of(const Phase& phase) const { return phase.training ? options_.slices : 1; }

  std::shared_ptr<const data::TokenFile> training_;
  std::shared_ptr<const data::TokenFile> evaluation_;
  BatchOptions options_;
  std::int64_t shards_;                    // of an evaluation
  std::int64_t shard_;                     // index of this replica's shard
  std::vector<data::SampleOrder> orders_;  // of training, by replica
  struct OfStep {
    std::optional<store::Step> step;
    std::vector<store::SampleId> samples;
  };
  mutable std::vector<OfStep> latest_;  // by replica
};

}  // namespace strait::stages

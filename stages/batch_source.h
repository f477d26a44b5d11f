#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "framework/codec/rows.h"
#include "framework/store/sample_order.h"
#include "framework/tensors/token_file.h"
#include "schedules/index.h"
#include "stages/phase.h"

namespace strait::stages {

struct BatchOptions {
  std::uint64_t seed = 0;
  std::int64_t replicas = 1;
  std::int64_t replica = 0;
  std::int64_t micro_batch_rows = 1;
  std::int64_t micro_batches = 1;  // of a training step
  bool shuffle = true;
};

// Of this replica, over a token file of so many rows.
store::SampleOrderOptions sample_order_options(const BatchOptions& options, std::int64_t rows);

// Which samples a micro-batch holds, and what is in them: a pure function of the phase, so that
// every process that needs tokens or labels knows them without being told.
class BatchSource {
 public:
  // `evaluation` may be null: then nobody evaluates.
  BatchSource(std::shared_ptr<const tensors::TokenFile> training,
              std::shared_ptr<const tensors::TokenFile> evaluation, const BatchOptions& options);

  std::vector<store::SampleId> samples(const Phase& phase, MicroBatch micro_batch) const;
  const tensors::TokenFile& file(const Phase& phase) const;
  codec::Rows rows(const Phase& phase, MicroBatch micro_batch) const;

  // Evaluations are dealt out anew, to so many replicas of which this is one.
  void deal(std::size_t replicas, std::size_t place);

  // Target tokens of the whole step over all micro-batches and replicas: what the loss is divided
  // by, whoever is there.
  std::int64_t target_tokens(const Phase& phase) const;
  // Of a training step, of these replicas.
  std::int64_t target_tokens(store::Step step, const std::vector<std::uint32_t>& replicas) const;
  // Of a training step, of this replica alone.
  std::int64_t own_target_tokens(const Phase& phase) const;

 private:
  std::shared_ptr<const tensors::TokenFile> training_;
  std::shared_ptr<const tensors::TokenFile> evaluation_;
  BatchOptions options_;
  std::int64_t evaluating_;                 // replicas that evaluations are dealt out to,
  std::int64_t evaluating_place_;           // and this one's place among them
  std::vector<store::SampleOrder> orders_;  // one for each replica
};

}  // namespace strait::stages

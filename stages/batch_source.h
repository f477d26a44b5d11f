#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "framework/codec/rows.h"
#include "framework/store/sample_order.h"
#include "framework/store/token_file.h"
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
  BatchSource(std::shared_ptr<const store::TokenFile> training,
              std::shared_ptr<const store::TokenFile> evaluation, const BatchOptions& options);

  std::vector<store::SampleId> samples(const Phase& phase, MicroBatch micro_batch) const;
  const store::TokenFile& file(const Phase& phase) const;
  codec::Rows rows(const Phase& phase, MicroBatch micro_batch) const;

  // Target tokens of the whole step over all micro-batches and replicas: what the loss is divided
  // by.
  std::int64_t target_tokens(const Phase& phase) const;
  // Of a training step, of this replica alone.
  std::int64_t own_target_tokens(const Phase& phase) const;

 private:
  std::shared_ptr<const store::TokenFile> training_;
  std::shared_ptr<const store::TokenFile> evaluation_;
  BatchOptions options_;
  std::vector<store::SampleOrder> orders_;  // one for each replica
};

}  // namespace strait::stages

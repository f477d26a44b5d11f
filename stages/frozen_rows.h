#pragma once

#include <map>

#include "framework/codec/settings.h"
#include "framework/codec/slot_store.h"
#include "framework/data/sample_order.h"
#include "stages/ports.h"

namespace strait::stages {

struct FrozenRowsOptions {
  codec::CacheLimits limits;  // of the rows; of a process without the first trained layer too
  std::filesystem::path disk_file;
  data::SampleOrderOptions order;
  std::int64_t micro_batch_rows = 1;
};

// What enters the first trained layer is the same at every visit of a sample, if no layer below it
// draws random numbers. So the stage of that layer keeps it from a sample's first visit on, and no
// stage computes or sends it again. Which rows are kept follows from the order of the samples, so
// that every stage knows it without a message. A new process begins without rows.
//
// Used by the compute thread. `limits` have room for all rows of the replica.
class FrozenRows {
 public:
  explicit FrozenRows(FrozenRowsOptions options);

  // Whether all rows of this micro-batch were in earlier training steps of this process. Steps are
  // asked for in their order.
  bool holds(const Phase& phase, MicroBatch micro_batch);

  // The others are for the stage of the first trained layer. Keeps the rows that are not kept yet.
  void keep(const Flow& input);
  // What keep() got for the rows of a micro-batch that holds() is true of.
  Flow flow(MicroBatch micro_batch) const;

 private:
  struct Kept {
    std::int64_t slot = 0;
    codec::Row row;
  };

  std::span<const store::SampleId> samples_of(MicroBatch micro_batch) const;
  at::Tensor values_of(std::span<std::byte> slot) const;

  const FrozenRowsOptions options_;
  const data::SampleOrder order_;
  std::optional<store::Step> step_;       // the latest one
  std::vector<store::SampleId> samples_;  // of that step
  std::vector<bool> visited_;             // by sample, in earlier steps
  codec::SlotStore store_;
  std::map<store::SampleId, Kept> kept_;
  at::Tensor like_;  // a row without values, for shape, type and device
};

}  // namespace strait::stages

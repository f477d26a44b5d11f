#pragma once

#include <cstdint>
#include <vector>

#include "framework/store/sample.h"

namespace strait::data {

struct SampleOrderOptions {
  std::uint64_t seed = 0;
  std::int64_t rows = 0;  // of the token file
  std::int64_t replicas = 1;
  std::int64_t replica = 0;
  std::int64_t rows_per_step = 1;  // of this replica
  bool shuffle = true;             // false: in the file's order
};

// Which samples a replica trains on at a step: a pure function of the options and the step, equal
// on every machine and every standard library, so that a resumed run needs no generator's state.
//
// Replica r owns rows r, r + replicas, … for the whole run. Its stream of samples is the epochs one
// behind the other, each a permutation of its rows of its own. Every step takes the next
// rows_per_step of the stream. A step that spans two epochs holds no sample twice: the new epoch's
// samples that the step already has stand behind the step's last place instead, in their order.
// Immutable: any thread may call.
class SampleOrder {
 public:
  // StoreError bad_input when a replica owns fewer rows than a step needs; names both numbers.
  explicit SampleOrder(const SampleOrderOptions& options);

  std::vector<store::SampleId> samples(store::Step step) const;

  // Steps that cover this many epochs on every replica; the last may reach into the next epoch.
  std::int64_t epoch_steps(std::int64_t epochs) const;

 private:
  using Places = std::vector<std::int64_t>;  // rows of the shard, by their place in an epoch

  std::int64_t shuffled(std::int64_t epoch, std::int64_t place) const;
  std::int64_t carried(std::int64_t epoch) const;
  Places front(std::int64_t epoch) const;
  Places front_after(std::int64_t epoch, const Places& tail) const;
  Places slice(std::int64_t epoch, const Places& front, std::int64_t from,
               std::int64_t count) const;

  SampleOrderOptions options_;
  std::int64_t shard_rows_ = 0;
};

}  // namespace strait::data

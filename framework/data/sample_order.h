#pragma once

#include <span>
#include <string>
#include <vector>

#include "framework/store/sample.h"

namespace strait::data {

// A token file among several that are trained on together.
// A file of a data set.
struct DataFile {
  std::string path = {};
  double weight = 1;  // how often each of its rows is in an epoch; above 0
  bool operator==(const DataFile&) const = default;
};
// For messages: "a.jsonl, b.jsonl".
std::string paths_of(const std::vector<DataFile>& files);

// One of several token files that are trained on together.
struct MixedFile {
  std::int64_t rows = 0;
  double weight = 1;  // how often each of its rows is used per epoch; above 0
};

// A row of one of them.
struct RowChoice {
  std::int32_t file = 0;
  std::int64_t row = 0;
  bool operator==(const RowChoice&) const = default;
};

// The rows of an epoch, in the order of the files. With weight 2.25 every row comes twice, and a
// quarter of them, drawn by the seed, once more. A pure function, equal on every machine.
std::vector<RowChoice> mix_rows(std::span<const MixedFile> files, std::uint64_t seed);

struct SampleOrderOptions {
  std::uint64_t seed = 0;
  std::int64_t rows = 0;  // of the token file
  std::int64_t replicas = 1;
  std::int64_t replica = 0;
  std::int64_t rows_per_step = 1;  // of each replica
  // The same if replicas differ, by replica; empty: all take rows_per_step.
  std::vector<std::int64_t> rows_by_replica = {};
  bool shuffle = true;  // false: the order of the file
};

// The samples that a replica trains on at a step: a pure function of options and step, equal on
// every machine and standard library. So a resumed run needs no generator state.
//
// Replica r owns rows r, r + replicas, and so on for the whole run. Where replicas take unequal
// numbers of rows, each owns its share of every stretch of rows instead. Its samples are a stream
// of epochs, each another permutation of its rows. Every step takes the next
// rows_per_step samples of the stream. A step that spans two epochs never holds a sample twice:
// samples of the new epoch that are already in the step move to positions after the step, in their
// order. Immutable: any thread may call.
class SampleOrder {
 public:
  // StoreError bad_input if there are fewer rows than a step needs; names both numbers.
  explicit SampleOrder(SampleOrderOptions options);

  std::vector<store::SampleId> samples(store::Step step) const;

  // The steps that cover this many epochs on every replica. The last one may reach into the next
  // epoch.
  std::int64_t epoch_steps(std::int64_t epochs) const;

 private:
  using Places = std::vector<std::int64_t>;  // rows of the shard, by position in an epoch

  std::int64_t shuffled(std::int64_t epoch, std::int64_t place) const;
  std::int64_t carried(std::int64_t epoch) const;
  Places front(std::int64_t epoch) const;
  Places front_after(std::int64_t epoch, const Places& tail) const;
  Places slice(std::int64_t epoch, const Places& front, std::int64_t from,
               std::int64_t count) const;

  std::int64_t shard_rows(std::size_t replica) const;

  SampleOrderOptions options_;
  // A stretch of rows is assigned as the one before it: which of its rows each replica owns.
  std::vector<std::vector<std::int64_t>> owned_;  // by replica
  std::int64_t stretch_ = 1;
  std::int64_t shard_rows_ = 0;
};

}  // namespace strait::data

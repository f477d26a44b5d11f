#include "stages/batch_source.h"

#include <algorithm>
#include <iterator>
#include <numeric>

#include "schedules/evaluation_shard.h"

namespace strait::stages {

std::int64_t micro_batches_before(const BatchOptions& options) {
  const auto& counts = options.micro_batches_by_replica;
  if (counts.empty()) return options.replica * options.micro_batches;
  return std::accumulate(counts.begin(), counts.begin() + options.replica, std::int64_t{0});
}

std::int64_t all_micro_batches(const BatchOptions& options) {
  BatchOptions after_all = options;
  after_all.replica = options.replicas;
  return micro_batches_before(after_all);
}

namespace {

store::SampleId slice_of(store::SampleId sample, int slice, int slices) {
  return static_cast<store::SampleId>(number(sample) * slices + slice);
}

// The lengths of documents, which follow each other, between two places of their row. Behind its
// beginning the first one has begun before.
std::vector<std::int64_t> documents_between(const std::vector<std::int64_t>& lengths,
                                            std::int64_t begin, std::int64_t end) {
  std::vector<std::int64_t> inside;
  std::int64_t first = 0;
  for (const std::int64_t length : lengths) {
    const std::int64_t last = first + length;
    if (begin > 0 && inside.empty() && first >= begin) inside.push_back(0);
    const std::int64_t shared = std::min(last, end) - std::max(first, begin);
    if (shared > 0) inside.push_back(shared);
    first = last;
  }
  if (begin > 0 && inside.empty()) inside.push_back(0);
  return inside;
}

}  // namespace

std::vector<store::SampleId> in_slices(const std::vector<store::SampleId>& samples,
                                       const BatchOptions& options) {
  std::vector<store::SampleId> parts;
  parts.reserve(samples.size() * static_cast<std::size_t>(options.slices));
  const auto rows = static_cast<std::size_t>(options.micro_batch_rows);
  for (std::size_t first = 0; first < samples.size(); first += rows) {
    const std::size_t last = std::min(first + rows, samples.size());
    for (int slice = 0; slice < options.slices; ++slice) {
      for (std::size_t i = first; i < last; ++i) {
        parts.push_back(slice_of(samples[i], slice, options.slices));
      }
    }
  }
  return parts;
}

data::SampleOrderOptions sample_order_options(const BatchOptions& options, std::int64_t rows) {
  std::vector<std::int64_t> by_replica = options.micro_batches_by_replica;
  for (std::int64_t& count : by_replica) count *= options.micro_batch_rows;
  return {.seed = options.seed,
          .rows = rows,
          .replicas = options.replicas,
          .replica = options.replica,
          .rows_per_step = options.micro_batch_rows * options.micro_batches,
          .rows_by_replica = std::move(by_replica),
          .shuffle = options.shuffle};
}

BatchSource::BatchSource(std::shared_ptr<const data::TokenFile> training,
                         std::shared_ptr<const data::TokenFile> evaluation,
                         const BatchOptions& options)
    : training_(std::move(training)),
      evaluation_(std::move(evaluation)),
      options_(options),
      shards_(options.replicas),
      shard_(options.replica) {
  // Inner stages read no tokens.
  if (training_ == nullptr) return;
  // One per replica, because the divisor of the loss counts the targets of all replicas.
  for (std::int64_t replica = 0; replica < options.replicas; ++replica) {
    BatchOptions of_replica = options;
    of_replica.replica = replica;
    orders_.emplace_back(sample_order_options(of_replica, training_->rows()));
  }
  latest_.resize(orders_.size());
}

void BatchSource::shard_evaluation(std::size_t replicas, std::size_t index) {
  shards_ = static_cast<std::int64_t>(replicas);
  shard_ = static_cast<std::int64_t>(index);
}

const data::TokenFile& BatchSource::file(const Phase& phase) const {
  return phase.reads_training() ? *training_ : *evaluation_;
}

const std::vector<store::SampleId>& BatchSource::samples_of(std::size_t replica,
                                                            store::Step step) const {
  OfStep& latest = latest_[replica];
  if (latest.step != step) latest = {step, orders_[replica].samples(step)};
  return latest.samples;
}

std::vector<store::SampleId> BatchSource::samples(const Phase& phase,
                                                  MicroBatch micro_batch) const {
  std::vector<store::SampleId> chosen;
  if (phase.reads_training()) {
    const std::int64_t whole = number(micro_batch) / slices_of(phase);
    const std::int64_t first = whole * options_.micro_batch_rows;
    const auto& step = samples_of(static_cast<std::size_t>(options_.replica), phase.step);
    chosen.assign(step.begin() + first, step.begin() + first + options_.micro_batch_rows);
    return chosen;
  }
  // By the rows of a training step, as long as no replica is lost.
  std::vector<std::int64_t> weights(static_cast<std::size_t>(shards_), 1);
  const auto& unequal = options_.micro_batches_by_replica;
  if (std::ssize(unequal) == shards_) weights = unequal;
  const std::int64_t first = options_.micro_batch_rows *
                             schedules::evaluation_micro_batch(number(micro_batch), weights,
                                                               static_cast<std::size_t>(shard_));
  const std::int64_t last = std::min(first + options_.micro_batch_rows, evaluation_->rows());
  for (std::int64_t row = first; row < last; ++row) {
    chosen.push_back(static_cast<store::SampleId>(row));
  }
  return chosen;
}

BatchSource::RowPart BatchSource::part_of(const Phase& phase, const codec::Row& row) const {
  const std::int64_t length = file(phase).row_length() / slices_of(phase);
  const std::int64_t slice = number(row.sample) % slices_of(phase);
  return {static_cast<store::SampleId>(number(row.sample) / slices_of(phase)), slice * length,
          (slice + 1) * length};
}

MicroBatch BatchSource::with_backward(const Phase& phase, int number) const {
  const int slices = slices_of(phase);
  return MicroBatch{number / slices * slices + slices - 1 - number % slices};
}

codec::Rows BatchSource::rows(const Phase& phase, MicroBatch micro_batch) const {
  const data::TokenFile& tokens = file(phase);
  const int slices = slices_of(phase);
  codec::Rows rows;
  // The same for every micro-batch: buffers of equal size are reused.
  rows.padded_length = tokens.row_length() / slices;
  for (const store::SampleId sample : samples(phase, micro_batch)) {
    codec::Row row{slice_of(sample, number(micro_batch) % slices, slices), {}};
    const RowPart part = part_of(phase, row);
    row.documents = documents_between(tokens.document_lengths(sample), part.begin, part.end);
    rows.rows.push_back(std::move(row));
  }
  return rows;
}

std::vector<std::int64_t> BatchSource::padded_tokens(const Phase& phase,
                                                     MicroBatch micro_batch) const {
  const data::TokenFile& all = file(phase);
  const codec::Rows chosen = rows(phase, micro_batch);
  std::vector<std::int64_t> tokens(static_cast<std::size_t>(chosen.size() * chosen.padded_length));
  auto to = tokens.begin();
  for (const codec::Row& row : chosen.rows) {
    const RowPart part = part_of(phase, row);
    std::copy_n(all.tokens(part.sample).begin() + part.begin, row.length(), to);
    to += chosen.padded_length;
  }
  return tokens;
}

std::int64_t BatchSource::targets_of(const data::TokenFile& file, store::SampleId sample) const {
  return options_.preferences ? std::ssize(file.document_lengths(sample)) / 2
                              : std::ssize(file.targets(sample));
}

std::int64_t BatchSource::target_tokens(const Phase& phase) const {
  std::int64_t sum = 0;
  if (!phase.training) {
    if (evaluation_ == nullptr) return 0;
    for (std::int64_t row = 0; row < evaluation_->rows(); ++row) {
      sum += targets_of(*evaluation_, static_cast<store::SampleId>(row));
    }
    return sum;
  }
  for (std::size_t replica = 0; replica < orders_.size(); ++replica) {
    for (const store::SampleId sample : samples_of(replica, phase.step)) {
      sum += targets_of(*training_, sample);
    }
  }
  return sum;
}

std::int64_t BatchSource::target_tokens(store::Step step,
                                        const std::vector<std::uint32_t>& replicas) const {
  std::int64_t sum = 0;
  for (const std::uint32_t replica : replicas) {
    for (const store::SampleId sample : samples_of(replica, step)) {
      sum += targets_of(*training_, sample);
    }
  }
  return sum;
}

}  // namespace strait::stages

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
    const std::int64_t first = number(micro_batch) * options_.micro_batch_rows;
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

codec::Rows BatchSource::rows(const Phase& phase, MicroBatch micro_batch) const {
  const data::TokenFile& tokens = file(phase);
  codec::Rows rows;
  // The same for every micro-batch: buffers of equal size are reused.
  rows.padded_length = tokens.row_length();
  for (const store::SampleId sample : samples(phase, micro_batch)) {
    rows.rows.push_back(codec::Row{sample, tokens.document_lengths(sample)});
  }
  return rows;
}

std::vector<std::int64_t> BatchSource::padded_tokens(const Phase& phase,
                                                     MicroBatch micro_batch) const {
  const data::TokenFile& all = file(phase);
  const std::vector<store::SampleId> chosen = samples(phase, micro_batch);
  std::vector<std::int64_t> tokens(chosen.size() * static_cast<std::size_t>(all.row_length()));
  auto to = tokens.begin();
  for (const store::SampleId sample : chosen) {
    std::copy_n(all.tokens(sample).begin(), all.length(sample), to);
    to += all.row_length();
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

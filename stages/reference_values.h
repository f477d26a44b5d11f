#pragma once

#include "framework/data/sample_order.h"
#include "stages/stage_state.h"
#include "stages/step_messages.h"

namespace strait::stages {

// The log-probabilities of answers by the reference model of a preference loss: computed once for
// each row, and saved in checkpoints. Stages without the LM head know only which rows have them, so
// that all stages of a replica play the same forwards. Used only by the compute thread.
class ReferenceValues {
 public:
  // The rows of training, in the order of this replica.
  explicit ReferenceValues(const data::SampleOrderOptions& order);

  bool has(store::Step step) const;  // the values of a training step
  bool has_evaluation() const { return has_evaluation_; }
  // The values of an epoch; with `evaluation`, of the evaluation.
  bool is_complete(bool evaluation) const;
  // The first steps whose samples are all rows of this replica.
  std::int64_t epoch_steps() const { return order_.epoch_steps(1); }

  // A reference phase has computed all rows that it reads.
  void played(const Phase& phase);
  // This replica evaluates other rows from now on.
  void evaluation_changed() { has_evaluation_ = false; }

  // On the stage of the LM head, for a row of this phase.
  void put(const Phase& phase, store::SampleId sample, std::vector<double> answers);
  const std::vector<double>& of(const Phase& phase, store::SampleId sample) const;

  // For a checkpoint of the stage with the LM head; in memory of their own.
  std::vector<tensors::NamedTensor> saved(std::int64_t replica, std::int64_t replicas) const;
  // Rows that the checkpoint does not have stay unknown.
  void restore(const ReadTensor& read, const HasTensor& has);

 private:
  using Rows = std::vector<std::vector<double>>;  // empty: unknown

  data::SampleOrder order_;
  Rows training_;
  Rows evaluation_;
  bool has_evaluation_ = false;
};

}  // namespace strait::stages

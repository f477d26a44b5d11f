#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "framework/net/link.h"
#include "models/model.h"
#include "stages/gradients.h"
#include "stages/looked_up_rows.h"
#include "stages/wait_clock.h"

namespace strait::stages {

// The token table that embedding and LM head share. Each layer's gradient is summed over the step
// on its own; both sums are added once, so that one process and two give the same bits.
//
// With the two layers on different stages, the stage of the LM head owns the table: values,
// moments, norm, sync and checkpoint. The first stage holds only the rows that the phase looks up.
// Their values come from the owner at the start of every phase, and their gradients go to it, in
// float32: both ends know from the data which rows these are (LookedUpRows). A row's value crosses
// before the micro-batch that is the first to use it, its gradient after the last one.
//
// The window of the link must hold the whole table, so that no end waits to send: both send while
// the peer may wait for something else.
class WeightTie {
 public:
  WeightTie() = default;
  WeightTie(const WeightTie&) = delete;
  WeightTie& operator=(const WeightTie&) = delete;
  virtual ~WeightTie() = default;

  // Before the first action of a phase, in which so many micro-batches are played.
  virtual void begin(const Phase&, int /*micro_batches*/) {}
  // After the last backward of a step, before its norms are computed.
  virtual void combine(Gradients& gradients) = 0;
  // Null if both layers are in this process.
  virtual net::Link* link() { return nullptr; }
  virtual double waited_seconds() const { return 0; }  // for values, so far
};

// Both layers are in this process and share one storage; the sum is in the embedding's gradient.
class LocalTie final : public WeightTie {
 public:
  LocalTie(at::Tensor embedding, at::Tensor head)
      : embedding_(std::move(embedding)), head_(std::move(head)) {}
  void combine(Gradients& gradients) override;

 private:
  at::Tensor embedding_;
  at::Tensor head_;
};

// The end at the LM head.
class OwnerTie final : public WeightTie {
 public:
  OwnerTie(at::Tensor head, std::unique_ptr<net::Link> link, const BatchSource& source,
           WaitClock& waits)
      : head_(std::move(head)), link_(std::move(link)), source_(source), waits_(waits) {}

  void begin(const Phase& phase, int micro_batches) override;
  void combine(Gradients& gradients) override;
  net::Link* link() override { return link_.get(); }

 private:
  at::Tensor head_;
  std::unique_ptr<net::Link> link_;
  const BatchSource& source_;
  WaitClock& waits_;
  LookedUpRows rows_;  // of the current phase
};

// The end at the embedding, whose table holds the rows of LookedUpRows::tokens during a phase and
// is empty before the first one.
class ReaderTie final : public WeightTie {
 public:
  // Before the first phase the padding row of `tied` is the padding token.
  ReaderTie(const models::TiedWeight& tied, std::unique_ptr<net::Link> link,
            const BatchSource& source, WaitClock& waits);

  void begin(const Phase& phase, int micro_batches) override;
  // The rows of these tokens of a micro-batch in the embedding's table. Waits for their values.
  std::vector<std::int64_t> rows_of(MicroBatch micro_batch, std::vector<std::int64_t> tokens);
  // After the backward of a micro-batch through the embedding, in index order.
  void backward_done(MicroBatch micro_batch);
  void combine(Gradients&) override {}
  net::Link* link() override { return link_.get(); }
  double waited_seconds() const override { return waited_seconds_; }

 private:
  void receive_values();

  at::Tensor embedding_;
  std::shared_ptr<std::int64_t> padding_row_;
  const std::int64_t padding_token_;
  std::unique_ptr<net::Link> link_;
  const BatchSource& source_;
  WaitClock& waits_;
  const std::int64_t width_;
  LookedUpRows rows_;                 // of the current phase
  std::vector<std::int64_t> row_of_;  // by token; of tokens of this phase only
  at::Tensor values_;                 // [rows, width], the embedding's storage
  at::Tensor sums_;                   // float32 gradients of these
  std::size_t received_ = 0;          // micro-batches whose values are here
  double waited_seconds_ = 0;
};

}  // namespace strait::stages

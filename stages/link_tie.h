#pragma once

#include "framework/codec/codec.h"
#include "framework/codec/settings.h"
#include "framework/net/link.h"
#include "models/model.h"
#include "stages/batch_source.h"
#include "stages/row_sender.h"
#include "stages/transfer.h"
#include "stages/wait_clock.h"
#include "stages/weight_tie.h"

namespace strait::stages {

// The rows of the token table that a phase looks up, each once. A pure function of the data: both
// ends of a tied weight know which rows cross and when, so no row numbers are sent.
struct LookedUpRows {
  std::vector<std::int64_t> tokens;  // distinct, ascending
  // By micro-batch: indices in `tokens` of the rows that it is the first to look up, or the last to
  // have a backward of.
  std::vector<std::vector<std::int64_t>> first_use;
  std::vector<std::vector<std::int64_t>> last_use;
};

LookedUpRows looked_up_rows(const BatchSource& source, const Phase& phase, int micro_batches);

// A tied token table on two stages. The stage of the LM head owns it: values, moments, norm, sync
// and checkpoint. The first stage holds only the rows that the phase looks up. Their values come
// from the owner at the start of every phase, and their gradients go back to it. Both ends know the
// rows from the data (LookedUpRows). A row's value crosses before the first micro-batch that uses
// it, its gradient after the last one.
//
// Rows are on the device of their table. They are copied, encoded and sent during compute.
//
// The link's window must hold the whole table, so that no end waits to send: both send while the
// peer may wait for something else.
struct LinkTieOptions {
  codec::CodecSettings codec;  // of tied_row_codec()
  at::ScalarType dtype = at::kFloat;
  std::uint64_t key = 0;  // of random draws in rounding
};

// How rows cross if boundaries use this codec. "raw" is exact for every wire type: values in the
// parameters' type, gradients in float32. With any other codec they are quantised: gradients to the
// boundary's bits, values to 8 bits or bfloat16. The owner's values are never rounded, so errors do
// not accumulate. In evaluations values are exact.
codec::CodecSettings tied_row_codec(const codec::CodecSettings& boundary);

// The end at the LM head.
class OwnerTie final : public WeightTie {
 public:
  OwnerTie(at::Tensor head, std::unique_ptr<net::Link> link, const BatchSource& source,
           const LinkTieOptions& options, WaitClock& waits);

  void begin(const Phase& phase, int micro_batches) override;
  void combine(Gradients& gradients) override;

 private:
  at::Tensor head_;
  std::unique_ptr<net::Link> link_;
  const BatchSource& source_;
  WaitClock& waits_;
  std::unique_ptr<codec::Encoder> values_;
  std::unique_ptr<codec::Encoder> evaluation_values_;
  std::unique_ptr<codec::Decoder> gradients_;
  Phase phase_{};      // the current phase
  LookedUpRows rows_;  // of the current phase
  Transfer transfer_;
  RowSender sender_;
};

// The end at the embedding. The embedding's table holds the rows of LookedUpRows::tokens during a
// phase, and is empty before the first one.
class ReaderTie final : public WeightTie {
 public:
  // Until the first phase the padding row of `tied` is the padding token.
  ReaderTie(const models::TiedWeight& tied, std::unique_ptr<net::Link> link,
            const BatchSource& source, const LinkTieOptions& options, WaitClock& waits);

  void begin(const Phase& phase, int micro_batches) override;
  // The rows of a micro-batch's tokens in the embedding's table. Waits for their values.
  std::vector<std::int64_t> rows_of(MicroBatch micro_batch, std::vector<std::int64_t> tokens);
  // Called after the backward of a micro-batch through the embedding, in the order of backwards.
  void backward_done(MicroBatch micro_batch);
  void combine(Gradients&) override {}
  double waited_seconds() const override { return waited_seconds_; }

 private:
  void receive_values();

  at::Tensor embedding_;
  std::shared_ptr<std::int64_t> padding_row_;
  const std::int64_t padding_token_;
  std::unique_ptr<net::Link> link_;
  const BatchSource& source_;
  WaitClock& waits_;
  std::unique_ptr<codec::Decoder> decoder_;
  std::unique_ptr<codec::Decoder> evaluation_decoder_;
  std::unique_ptr<codec::Encoder> gradients_;
  const std::int64_t width_;
  Phase phase_{};                     // the current phase
  LookedUpRows rows_;                 // of the current phase
  std::vector<std::int64_t> row_of_;  // by token, for tokens of this phase
  at::Tensor values_;                 // [rows, width], the embedding's storage
  at::Tensor sums_;                   // their float32 gradients
  std::size_t received_ = 0;          // number of micro-batches whose values have arrived
  double waited_seconds_ = 0;
  Transfer transfer_;
  RowSender sender_;
};

}  // namespace strait::stages

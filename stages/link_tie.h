#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "framework/codec/codec.h"
#include "framework/codec/settings.h"
#include "framework/net/link.h"
#include "models/model.h"
#include "stages/looked_up_rows.h"
#include "stages/row_sender.h"
#include "stages/transfer.h"
#include "stages/wait_clock.h"
#include "stages/weight_tie.h"

namespace strait::stages {

// A tied token table on two stages. The stage of the LM head owns it: values, moments, norm, sync
// and checkpoint. The first stage holds only the rows that the phase looks up. Their values come
// from the owner at the start of every phase, and their gradients go to it: both ends know from the
// data which rows these are (LookedUpRows). A row's value crosses before the micro-batch that is
// the first to use it, its gradient after the last one.
//
// Rows are on the device of their table; they are copied, encoded and sent beside compute.
//
// The window of the link must hold the whole table, so that no end waits to send: both send while
// the peer may wait for something else.
struct LinkTieOptions {
  codec::CodecSettings codec;  // of tied_row_codec()
  at::ScalarType dtype = at::kFloat;
  std::uint64_t key = 0;  // of random draws in rounding
};

// How rows cross beside boundaries with this codec. "raw" is exact, whatever the wire type: values
// in the parameters' type, gradients in float32. With any other codec they are quantised: gradients
// with as many bits as the boundary's, values with 8 bits or as bfloat16. The owner's values are
// never rounded, so that no error stays. In evaluations values are exact.
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
  Phase phase_{};      // the current one
  LookedUpRows rows_;  // of it
  Transfer transfer_;
  RowSender sender_;
};

// The end at the embedding, whose table holds the rows of LookedUpRows::tokens during a phase and
// is empty before the first one.
class ReaderTie final : public WeightTie {
 public:
  // Until the first phase the padding row of `tied` is the padding token.
  ReaderTie(const models::TiedWeight& tied, std::unique_ptr<net::Link> link,
            const BatchSource& source, const LinkTieOptions& options, WaitClock& waits);

  void begin(const Phase& phase, int micro_batches) override;
  // The rows of these tokens of a micro-batch in the embedding's table. Waits for their values.
  std::vector<std::int64_t> rows_of(MicroBatch micro_batch, std::vector<std::int64_t> tokens);
  // After the backward of a micro-batch through the embedding, in index order.
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
  Phase phase_{};                     // the current one
  LookedUpRows rows_;                 // of it
  std::vector<std::int64_t> row_of_;  // by token; of tokens of this phase only
  at::Tensor values_;                 // [rows, width], the embedding's storage
  at::Tensor sums_;                   // float32 gradients of these
  std::size_t received_ = 0;          // micro-batches whose values are here
  double waited_seconds_ = 0;
  Transfer transfer_;
  RowSender sender_;
};

}  // namespace strait::stages

#include "stages/weight_tie.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "framework/codec/message.h"

namespace strait::stages {
namespace {

// Rows of a table as a message; there is none without rows.
void send_rows(net::Link& link, const at::Tensor& table, const std::vector<std::int64_t>& rows) {
  if (rows.empty()) return;
  const at::Tensor chosen =
      table.index_select(0, at::tensor(rows, at::kLong).to(table.device())).cpu();
  net::Frame frame(chosen.nbytes());
  std::memcpy(frame.data(), chosen.const_data_ptr(), frame.size());
  link.send(std::move(frame));
}

at::Tensor receive_rows(net::Link& link, const std::vector<std::int64_t>& rows, std::int64_t width,
                        at::ScalarType type) {
  at::Tensor chosen =
      at::empty({static_cast<std::int64_t>(rows.size()), width}, at::TensorOptions(type));
  const net::Frame frame = link.receive();
  if (frame.size() != chosen.nbytes()) {
    throw codec::CodecError(
        fmt::format("{} sent {} bytes of a tied weight where {} were expected: {} rows of {}",
                    link.state().peer, frame.size(), chosen.nbytes(), rows.size(), width));
  }
  std::memcpy(chosen.mutable_data_ptr(), frame.data(), frame.size());
  return chosen;
}

std::vector<std::int64_t> tokens_at(const LookedUpRows& rows,
                                    const std::vector<std::int64_t>& indices) {
  std::vector<std::int64_t> tokens;
  tokens.reserve(indices.size());
  for (const std::int64_t index : indices) {
    tokens.push_back(rows.tokens[static_cast<std::size_t>(index)]);
  }
  return tokens;
}

}  // namespace

void LocalTie::combine(Gradients& gradients) { gradients.of(embedding_).add_(gradients.of(head_)); }

void OwnerTie::begin(const Phase& phase, int micro_batches) {
  rows_ = looked_up_rows(source_, phase, micro_batches);
  const at::Tensor table = head_.detach();
  for (const std::vector<std::int64_t>& rows : rows_.first_use) {
    send_rows(*link_, table, tokens_at(rows_, rows));
  }
}

void OwnerTie::combine(Gradients& gradients) {
  at::Tensor& sum = gradients.of(head_);
  // In one process the other rows get the embedding's zeros, which turn -0.0 into 0.0.
  sum.add_(0.0);
  for (const std::vector<std::int64_t>& rows : rows_.last_use) {
    if (rows.empty()) continue;
    const WaitClock::Wait wait(waits_, "the gradients of a tied weight", *link_);
    const at::Tensor theirs = receive_rows(*link_, rows, sum.size(1), at::kFloat);
    // No row is in two messages: each gets one addition.
    sum.index_add_(0, at::tensor(tokens_at(rows_, rows), at::kLong).to(sum.device()),
                   theirs.to(sum.device()));
  }
}

ReaderTie::ReaderTie(const models::TiedWeight& tied, std::unique_ptr<net::Link> link,
                     const BatchSource& source, WaitClock& waits)
    : embedding_(tied.embedding),
      padding_row_(tied.padding_row),
      padding_token_(*padding_row_),
      link_(std::move(link)),
      source_(source),
      waits_(waits),
      width_(embedding_.size(1)) {}

void ReaderTie::begin(const Phase& phase, int micro_batches) {
  rows_ = looked_up_rows(source_, phase, micro_batches);
  received_ = 0;
  const auto count = static_cast<std::int64_t>(rows_.tokens.size());
  row_of_.resize(count == 0 ? 0 : static_cast<std::size_t>(rows_.tokens.back()) + 1);
  for (std::int64_t row = 0; row < count; ++row) {
    row_of_[static_cast<std::size_t>(rows_.tokens[static_cast<std::size_t>(row)])] = row;
  }
  const at::TensorOptions options = embedding_.options().requires_grad(false);
  values_ = at::empty({count, width_}, options);
  embedding_.set_data(values_);
  embedding_.mutable_grad() = at::Tensor();
  const auto padding = std::lower_bound(rows_.tokens.begin(), rows_.tokens.end(), padding_token_);
  const bool used = padding != rows_.tokens.end() && *padding == padding_token_;
  *padding_row_ = used ? padding - rows_.tokens.begin() : -1;
  if (!phase.training) return;
  sums_ = at::zeros({count, width_}, options.dtype(at::kFloat));
  // Backward functions add in place: from here on to the sums, in float32 for narrow tables, too.
  embedding_.mutable_grad() = sums_;
}

std::vector<std::int64_t> ReaderTie::rows_of(MicroBatch micro_batch,
                                             std::vector<std::int64_t> tokens) {
  while (received_ <= static_cast<std::size_t>(number(micro_batch))) receive_values();
  for (std::int64_t& token : tokens) token = row_of_[static_cast<std::size_t>(token)];
  return tokens;
}

void ReaderTie::receive_values() {
  const std::vector<std::int64_t>& rows = rows_.first_use.at(received_++);
  if (rows.empty()) return;
  const double before = waits_.read().total;
  {
    const WaitClock::Wait wait(waits_, "the values of a tied weight", *link_);
    const at::Tensor values = receive_rows(*link_, rows, width_, embedding_.scalar_type());
    // Not through the leaf, whose version autograd compares: rows that were read do not change.
    values_.index_copy_(0, at::tensor(rows, at::kLong).to(values_.device()),
                        values.to(values_.device()));
  }
  waited_seconds_ += waits_.read().total - before;
}

void ReaderTie::backward_done(MicroBatch micro_batch) {
  send_rows(*link_, sums_, rows_.last_use.at(static_cast<std::size_t>(number(micro_batch))));
}

}  // namespace strait::stages

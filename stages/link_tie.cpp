#include "stages/link_tie.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "framework/codec/codecs.h"
#include "framework/codec/raw.h"
#include "kernels/kernel_tensors.h"

namespace strait::stages {
namespace {

using codec::Direction;

// first_bits = 16 means bfloat16.
constexpr std::int64_t kBfloat16Bits = 16;
// The least bits of values, and of gradients if the boundary's codec chooses its own bits.
constexpr std::int64_t kLeastBits = 8;

constexpr const char* kRaw = "raw";
constexpr const char* kFixed = "fixed";

// Direction::forward: values; Direction::backward: gradients.
codec::DirectionSettings row_settings(const LinkTieOptions& options, Direction direction) {
  codec::DirectionSettings settings;
  settings.codec = options.codec;
  settings.direction = direction;
  settings.result = direction == Direction::forward ? options.dtype : at::kFloat;
  settings.key = options.key;
  return settings;
}

at::ScalarType raw_type(const LinkTieOptions& options, Direction direction) {
  if (direction == Direction::backward) return at::kFloat;
  const bool rounds = options.codec.forward != kRaw && options.dtype == at::kFloat;
  return rounds ? at::kBFloat16 : options.dtype;
}

bool is_raw(const LinkTieOptions& options, Direction direction) {
  return options.codec.name(direction) == kRaw || options.codec.bits(direction) == kBfloat16Bits;
}

std::unique_ptr<codec::Encoder> row_encoder(const LinkTieOptions& options, Direction direction) {
  if (is_raw(options, direction)) {
    return std::make_unique<codec::RawEncoder>(raw_type(options, direction));
  }
  return codec::codecs().named(kFixed).encoder(row_settings(options, direction), nullptr);
}

std::unique_ptr<codec::Decoder> row_decoder(const LinkTieOptions& options, Direction direction) {
  const codec::DirectionSettings settings = row_settings(options, direction);
  if (is_raw(options, direction)) {
    return std::make_unique<codec::RawDecoder>(raw_type(options, direction), settings.result);
  }
  return codec::codecs().named(kFixed).decoder(settings, nullptr);
}

// Both ends know what a message holds, so its header is not sent.
codec::TensorHeader row_header(const Phase& phase, std::size_t micro_batch, std::size_t rows,
                               std::int64_t width) {
  const auto count = static_cast<std::int64_t>(rows);
  codec::TensorHeader header;
  header.evaluation = !phase.training;
  header.step = phase.step;
  header.micro_batch = static_cast<std::int32_t>(micro_batch);
  header.width = width;
  header.rows.padded_length = count;
  header.rows.rows.push_back({store::SampleId{}, {count}});
  return header;
}

at::Tensor index_tensor(const std::vector<std::int64_t>& rows, const at::Tensor& table) {
  return kernels::on_device(at::tensor(rows, at::kLong), table.device());
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

at::Tensor chosen_rows(const at::Tensor& table, const std::vector<std::int64_t>& rows) {
  return table.index_select(0, index_tensor(rows, table)).unsqueeze(0);
}

// Decodes a frame for the device of the table.
at::Tensor arrived(Transfer& transfer, codec::Decoder& decoder, const codec::TensorHeader& header,
                   const net::Frame& frame) {
  return transfer.arrive(transfer.to_device(decoder.decode(header, frame).values)).squeeze(0);
}

}  // namespace

codec::CodecSettings tied_row_codec(const codec::CodecSettings& boundary) {
  codec::CodecSettings rows = boundary;
  if (boundary.forward != kRaw) {
    rows.forward = kFixed;
    rows.forward_bits = std::max(boundary.first_bits, kLeastBits);
  }
  if (boundary.backward != kRaw && boundary.backward != kFixed) {
    rows.backward = kFixed;
    rows.backward_bits = std::max(boundary.backward_bits, kLeastBits);
  }
  return rows;
}

OwnerTie::OwnerTie(at::Tensor head, std::unique_ptr<net::Link> link, const BatchSource& source,
                   const LinkTieOptions& options, WaitClock& waits)
    : head_(std::move(head)),
      link_(std::move(link)),
      source_(source),
      waits_(waits),
      values_(row_encoder(options, Direction::forward)),
      evaluation_values_(std::make_unique<codec::RawEncoder>(options.dtype)),
      gradients_(row_decoder(options, Direction::backward)),
      transfer_(head_.device()),
      sender_(*link_) {}

void OwnerTie::begin(const Phase& phase, int micro_batches) {
  phase_ = phase;
  rows_ = looked_up_rows(source_, phase, micro_batches);
  const at::Tensor table = head_.detach();
  codec::Encoder& encoder = phase.training ? *values_ : *evaluation_values_;
  for (std::size_t m = 0; m < rows_.first_use.size(); ++m) {
    const std::vector<std::int64_t>& rows = rows_.first_use[m];
    if (rows.empty()) continue;
    const codec::TensorHeader header = row_header(phase, m, rows.size(), table.size(1));
    sender_.send(encoder, header, transfer_.to_host(chosen_rows(table, tokens_at(rows_, rows))));
  }
}

void OwnerTie::combine(Gradients& gradients) {
  at::Tensor& sum = gradients.of(head_);
  // In one process the other rows get the embedding's zeros, which turn -0.0 into 0.0; the bits
  // must be the same here.
  sum.add_(0.0);
  for (std::size_t i = 0; i < rows_.last_use.size(); ++i) {
    const auto m =
        static_cast<std::size_t>(number(source_.with_backward(phase_, static_cast<int>(i))));
    const std::vector<std::int64_t>& rows = rows_.last_use[m];
    if (rows.empty()) continue;
    const WaitClock::Wait wait(waits_, "the gradients of a tied weight", *link_);
    const net::Frame frame = sender_.receive();
    const codec::TensorHeader header = row_header(phase_, m, rows.size(), sum.size(1));
    // No row is in two messages, so each gets one addition, whatever the order.
    sum.index_add_(0, index_tensor(tokens_at(rows_, rows), sum),
                   arrived(transfer_, *gradients_, header, frame));
  }
}

ReaderTie::ReaderTie(const models::TiedWeight& tied, std::unique_ptr<net::Link> link,
                     const BatchSource& source, const LinkTieOptions& options, WaitClock& waits)
    : embedding_(tied.embedding),
      padding_row_(tied.padding_row),
      padding_token_(*padding_row_),
      link_(std::move(link)),
      source_(source),
      waits_(waits),
      decoder_(row_decoder(options, Direction::forward)),
      evaluation_decoder_(std::make_unique<codec::RawDecoder>(options.dtype, options.dtype)),
      gradients_(row_encoder(options, Direction::backward)),
      width_(embedding_.size(1)),
      transfer_(embedding_.device()),
      sender_(*link_) {}

void ReaderTie::begin(const Phase& phase, int micro_batches) {
  phase_ = phase;
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
  // Backward functions add in place, so from here on to these float32 sums, even for narrow tables.
  embedding_.mutable_grad() = sums_;
}

std::vector<std::int64_t> ReaderTie::rows_of(MicroBatch micro_batch,
                                             std::vector<std::int64_t> tokens) {
  while (received_ <= static_cast<std::size_t>(number(micro_batch))) receive_values();
  for (std::int64_t& token : tokens) token = row_of_[static_cast<std::size_t>(token)];
  return tokens;
}

void ReaderTie::receive_values() {
  const std::size_t micro_batch = received_++;
  const std::vector<std::int64_t>& rows = rows_.first_use.at(micro_batch);
  if (rows.empty()) return;
  const double before = waits_.read().total;
  net::Frame frame;
  {
    const WaitClock::Wait wait(waits_, "the values of a tied weight", *link_);
    frame = sender_.receive();
  }
  waited_seconds_ += waits_.read().total - before;
  codec::Decoder& decoder = phase_.training ? *decoder_ : *evaluation_decoder_;
  const codec::TensorHeader header = row_header(phase_, micro_batch, rows.size(), width_);
  // Not through the leaf, whose version autograd compares: rows that were already read do not
  // change.
  values_.index_copy_(0, index_tensor(rows, values_), arrived(transfer_, decoder, header, frame));
}

void ReaderTie::backward_done(MicroBatch micro_batch) {
  const at::NoGradGuard no_grad;
  const auto index = static_cast<std::size_t>(number(micro_batch));
  const std::vector<std::int64_t>& rows = rows_.last_use.at(index);
  if (rows.empty()) return;
  sender_.send(*gradients_, row_header(phase_, index, rows.size(), width_),
               transfer_.to_host(chosen_rows(sums_, rows)));
}

LookedUpRows looked_up_rows(const BatchSource& source, const Phase& phase, int micro_batches) {
  const auto tokens = static_cast<std::size_t>(source.file(phase).largest_token()) + 1;
  // The micro-batches with the first forward and the last backward of each token; -1: none.
  std::vector<int> first(tokens, -1);
  std::vector<int> last(tokens, -1);
  for (int i = 0; i < micro_batches; ++i) {
    for (const std::int64_t token : source.padded_tokens(phase, MicroBatch{i})) {
      int& use = first[static_cast<std::size_t>(token)];
      if (use < 0) use = i;
    }
    const MicroBatch next = source.with_backward(phase, i);
    for (const std::int64_t token : source.padded_tokens(phase, next)) {
      last[static_cast<std::size_t>(token)] = number(next);
    }
  }
  LookedUpRows rows;
  rows.first_use.resize(static_cast<std::size_t>(micro_batches));
  rows.last_use.resize(static_cast<std::size_t>(micro_batches));
  for (std::size_t token = 0; token < tokens; ++token) {
    if (first[token] < 0) continue;
    const auto index = static_cast<std::int64_t>(rows.tokens.size());
    rows.tokens.push_back(static_cast<std::int64_t>(token));
    rows.first_use[static_cast<std::size_t>(first[token])].push_back(index);
    rows.last_use[static_cast<std::size_t>(last[token])].push_back(index);
  }
  return rows;
}

}  // namespace strait::stages

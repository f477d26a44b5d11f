#include "stages/boundary_end.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

namespace strait::stages {
namespace {

// How often the receiving thread checks whether the end is closing.
constexpr std::chrono::milliseconds kClosingPoll{100};

double seconds_from(trace::Nanoseconds start) {
  return 1e-9 * static_cast<double>(trace::now() - start);
}

const char* direction_word(codec::Kind kind) {
  return kind == codec::Kind::forward ? "forward" : "backward";
}

// For the trace.
BoundarySpans::Message message_of(codec::Kind kind, std::int64_t micro_batch, std::size_t bytes) {
  const char* name = "note";
  if (kind == codec::Kind::forward) name = "activation";
  if (kind == codec::Kind::backward) name = "gradient";
  if (kind == codec::Kind::resend) name = "request of rows";
  if (kind == codec::Kind::whole) name = "rows again";
  return {name, kind == codec::Kind::note ? -1 : micro_batch, static_cast<std::int64_t>(bytes)};
}

}  // namespace

BoundaryEnd::BoundaryEnd(std::unique_ptr<net::Link> link, BoundaryCodecs codecs, WaitClock& waits,
                         std::string peer, at::Device device, std::chrono::milliseconds report_time,
                         BoundarySpans spans)
    : link_(std::move(link)),
      codecs_(std::move(codecs)),
      waits_(waits),
      peer_(std::move(peer)),
      transfer_(device),
      report_time_(report_time),
      spans_(spans),
      sender_([this] { send_loop(); }),
      receiver_([this] { receive_loop(); }) {}

BoundaryEnd::~BoundaryEnd() {
  {
    const MutexLock lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  // The sending thread may wait for a window that the peer no longer empties; abort() wakes it.
  link_->abort(net::LinkError(net::LinkError::Kind::aborted, peer_ + ": this side has closed"));
  sender_.join();
  receiver_.join();
}

void BoundaryEnd::send(codec::TensorHeader header, const at::Tensor& tensor) {
  header.width = tensor.size(2);
  const bool lends = !header.evaluation && codecs_.encoder->takes_device();
  Copied copied = lends ? transfer_.lend(tensor) : transfer_.to_host(tensor);
  enqueue(Outgoing{std::move(header), std::move(copied), {}});
}

void BoundaryEnd::send_note(net::Frame note) { enqueue(Outgoing{{}, {}, std::move(note)}); }

// Admits one tensor beyond the limit, so that a tensor larger than the limit can be sent.
void BoundaryEnd::enqueue(Outgoing outgoing) {
  {
    const MutexLock lock(mutex_);
    throw_if_poisoned();
    // A tensor that was admitted may exceed the limit; only the next one waits.
    if (outbox_bytes_ > kQueueBytes) {
      const WaitClock::Wait wait(waits_, "room in the window", *link_);
      while (outbox_bytes_ > kQueueBytes && error_ == nullptr) changed_.wait(mutex_);
      throw_if_poisoned();
    }
    outbox_bytes_ += outgoing.bytes();
    outbox_.push_back(std::move(outgoing));
  }
  changed_.notify_all();
}

// Put before all tensors, and without waiting, because the compute thread of either end may be
// waiting for it.
void BoundaryEnd::enqueue_first(codec::TensorHeader rows_message) {
  {
    const MutexLock lock(mutex_);
    outbox_.push_front(Outgoing{std::move(rows_message), {}, {}});
  }
  changed_.notify_all();
}

Flow BoundaryEnd::take(codec::Kind kind, const Phase& phase, MicroBatch micro_batch) {
  BoundaryInbox::Arrived arrived;
  {
    const MutexLock lock(mutex_);
    if (!inbox_.ready()) {
      const WaitClock::Wait wait(
          waits_, fmt::format("{} of micro-batch {}", direction_word(kind), number(micro_batch)),
          *link_);
      while (!inbox_.ready() && error_ == nullptr) changed_.wait(mutex_);
    }
    // Tensors that arrived before the error are still delivered.
    if (!inbox_.ready()) throw_if_poisoned();
    arrived = inbox_.pop();
  }
  changed_.notify_all();
  const codec::TensorHeader& header = arrived.header;
  // Both ends play the same action list, so any other tensor is an error of the peer.
  if (header.kind != kind || header.step != phase.step || header.evaluation == phase.training ||
      header.micro_batch != number(micro_batch)) {
    throw codec::CodecError(fmt::format(
        "{} sent the {} of step {} micro-batch {}{} where step {} micro-batch {}{} was expected",
        peer_, direction_word(header.kind), number(header.step), header.micro_batch,
        header.evaluation ? " (evaluation)" : "", number(phase.step), number(micro_batch),
        phase.training ? "" : " (evaluation)"));
  }
  return Flow{transfer_.arrive(std::move(arrived.values)), std::move(arrived.header.rows)};
}

net::Frame BoundaryEnd::take_note(const std::string& what) {
  const MutexLock lock(mutex_);
  if (notes_.empty()) {
    const WaitClock::Wait wait(waits_, what, *link_);
    while (notes_.empty() && error_ == nullptr) changed_.wait(mutex_);
  }
  if (notes_.empty()) throw_if_poisoned();
  net::Frame note = std::move(notes_.front());
  notes_.pop_front();
  return note;
}

codec::Traffic BoundaryEnd::sent() const {
  const MutexLock lock(mutex_);
  return sent_;
}

codec::Traffic BoundaryEnd::received() const {
  const MutexLock lock(mutex_);
  return received_;
}

CodingSeconds BoundaryEnd::take_coding() {
  const MutexLock lock(mutex_);
  return std::exchange(coding_, {});
}

net::Frame BoundaryEnd::encode(Outgoing& outgoing) {
  if (!outgoing.note.empty()) return std::move(outgoing.note);
  // Only on the sending thread, in the order of the queue: codecs have state.
  net::Frame frame;
  codec::write_header(outgoing.header, frame);
  if (outgoing.header.kind == codec::Kind::resend) return frame;
  const at::Tensor tensor = Transfer::wait(std::move(outgoing.tensor));
  if (outgoing.header.evaluation) {
    codecs_.evaluation_encoder->encode(outgoing.header, tensor, frame);
    return frame;
  }
  codec::Encoder& encoder = *codecs_.encoder;
  const trace::Nanoseconds encodes = trace::now();
  if (outgoing.header.kind == codec::Kind::whole) {
    encoder.encode_whole(outgoing.header, frame);
  } else {
    encoder.encode(outgoing.header, tensor, frame);
  }
  // Updated before the frame is sent, so that whatever the peer does with the frame comes after the
  // count.
  const MutexLock lock(mutex_);
  sent_ = encoder.traffic();
  coding_.encode += seconds_from(encodes);
  return frame;
}

void BoundaryEnd::send_loop() {
  try {
    const auto stream = transfer_.sending();
    while (true) {
      Outgoing outgoing;
      {
        const MutexLock lock(mutex_);
        while (outbox_.empty() && !closing_) changed_.wait(mutex_);
        if (closing_) return;
        outgoing = std::move(outbox_.front());
        outbox_.pop_front();
      }
      const std::size_t bytes = outgoing.bytes();
      const trace::Nanoseconds encodes = trace::now();
      const codec::Kind kind = outgoing.note.empty() ? outgoing.header.kind : codec::Kind::note;
      net::Frame frame = encode(outgoing);
      const auto message = message_of(kind, outgoing.header.micro_batch, frame.size());
      const trace::Nanoseconds sends = trace::now();
      link_->send(std::move(frame));
      spans_.sent(message, encodes, sends, trace::now());
      {
        // Only now is the memory free: the tensor counted while it was encoded and sent.
        const MutexLock lock(mutex_);
        outbox_bytes_ -= bytes;
      }
      changed_.notify_all();
    }
  } catch (const std::exception& error) {
    poison(error);
  }
}

void BoundaryEnd::receive_loop() {
  try {
    const auto stream = transfer_.receiving();
    trace::Nanoseconds waits = trace::now();
    while (true) {
      {
        const MutexLock lock(mutex_);
        // It goes on while a tensor lacks rows: the reply comes after everything that the peer has
        // sent, and without it the inbox cannot be emptied.
        while (inbox_.bytes() > kQueueBytes && !inbox_.waits_for_rows() && !closing_) {
          changed_.wait(mutex_);
        }
        if (closing_) return;
      }
      std::optional<net::Frame> frame =
          link_->receive_until(std::chrono::steady_clock::now() + kClosingPoll);
      if (!frame) continue;
      const trace::Nanoseconds arrived = trace::now();
      const BoundarySpans::Message message = accept(std::move(*frame));
      const trace::Nanoseconds decoded = trace::now();
      spans_.received(message, waits, arrived, decoded);
      waits = decoded;
    }
  } catch (const std::exception& error) {
    poison(error);
  }
}

BoundarySpans::Message BoundaryEnd::accept(net::Frame frame) {
  const codec::Kind kind = codec::kind_of(frame);
  const std::size_t bytes = frame.size();
  if (kind == codec::Kind::note) {
    {
      const MutexLock lock(mutex_);
      notes_.push_back(std::move(frame));
    }
    changed_.notify_all();
    return message_of(kind, -1, bytes);
  }
  codec::ReadTensor read = codec::read_header(frame);
  const auto message = message_of(kind, read.header.micro_batch, bytes);
  if (kind == codec::Kind::resend) {
    if (read.header.evaluation) {
      throw codec::CodecError(peer_ +
                              " requested rows of an evaluation again; evaluations have no cache");
    }
    read.header.kind = codec::Kind::whole;
    enqueue_first(std::move(read.header));
  } else if (kind == codec::Kind::whole) {
    accept_resent_rows(read);
  } else {
    accept_tensor(std::move(read));
  }
  return message;
}

void BoundaryEnd::accept_tensor(codec::ReadTensor read) {
  const codec::MessageLimits& limits = codecs_.limits;
  const codec::Rows& rows = read.header.rows;
  if (read.header.width != limits.width || rows.size() > limits.rows ||
      rows.padded_length > limits.row_tokens) {
    throw codec::CodecError(
        fmt::format("{} sent the {} of step {} micro-batch {} as {} rows of {} tokens with {} "
                    "values each; this "
                    "run has at most {} rows of {} tokens with {} values",
                    peer_, direction_word(read.header.kind), number(read.header.step),
                    read.header.micro_batch, rows.size(), rows.padded_length, read.header.width,
                    limits.rows, limits.row_tokens, limits.width));
  }
  const bool training = !read.header.evaluation;
  codec::Decoder& decoder = training ? *codecs_.decoder : *codecs_.evaluation_decoder;
  const trace::Nanoseconds decodes = trace::now();
  codec::Decoded decoded = decoder.decode(read.header, read.payload);
  const double decode_seconds = seconds_from(decodes);
  // The request leaves after push(), so that the reply finds its tensor.
  std::optional<codec::TensorHeader> request;
  if (!decoded.missing.empty()) {
    request = rows_message(codec::Kind::resend, read.header, decoded.missing);
  }
  Copied values{std::move(decoded.values)};
  if (decoded.missing.empty()) values = transfer_.to_device(std::move(values.tensor));
  {
    const MutexLock lock(mutex_);
    if (training) received_ = decoder.traffic();
    if (training) coding_.decode += decode_seconds;
    inbox_.push({std::move(read.header), std::move(values), std::move(decoded.missing)});
  }
  changed_.notify_all();
  if (request) enqueue_first(std::move(*request));
}

void BoundaryEnd::accept_resent_rows(const codec::ReadTensor& read) {
  codec::Decoded incomplete;
  {
    const MutexLock lock(mutex_);
    incomplete = inbox_.requested(read.header);
  }
  // Without the lock: an incomplete tensor cannot be taken, so only this thread uses its memory.
  codecs_.decoder->complete(read.header, read.payload, incomplete.missing, incomplete.values);
  // Once the tensor can be taken, no reference to its memory may remain here, or the pool could not
  // tell that it is free.
  Copied complete = transfer_.to_device(std::move(incomplete.values));
  {
    const MutexLock lock(mutex_);
    received_ = codecs_.decoder->traffic();
    inbox_.complete(read.header, std::move(complete));
  }
  changed_.notify_all();
}

void BoundaryEnd::poison(const std::exception& error) {
  {
    const MutexLock lock(mutex_);
    if (error_ == nullptr) error_ = std::current_exception();
  }
  changed_.notify_all();
  if (dynamic_cast<const net::LinkError*>(&error) != nullptr) return;  // the link has ended
  // Computation may wait for something else that the peer sends only after the missing tensor. The
  // link is not aborted at once, because a peer that reports the lost link first would look like
  // the cause.
  {
    const auto until = std::chrono::steady_clock::now() + report_time_;
    const MutexLock lock(mutex_);
    while (!closing_ && std::chrono::steady_clock::now() < until)
      changed_.wait_until(mutex_, until);
    if (closing_) return;
  }
  link_->abort(net::LinkError(net::LinkError::Kind::aborted, error.what()));
}

void BoundaryEnd::throw_if_poisoned() const {
  if (error_ != nullptr) std::rethrow_exception(error_);
}

}  // namespace strait::stages

#include "stages/boundary_end.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <utility>

#include "framework/codec/codec_error.h"

namespace strait::stages {
namespace {

// How long a thread sleeps in the link before it looks whether the end is closing.
constexpr std::chrono::milliseconds kLook{100};

const char* direction_word(codec::Kind kind) {
  return kind == codec::Kind::forward ? "forward" : "backward";
}

}  // namespace

BoundaryEnd::BoundaryEnd(std::unique_ptr<net::Link> link, BoundaryCodecs codecs, WaitClock& waits,
                         std::string peer)
    : link_(std::move(link)),
      codecs_(std::move(codecs)),
      waits_(waits),
      peer_(std::move(peer)),
      sender_([this] { send_loop(); }),
      receiver_([this] { receive_loop(); }) {}

BoundaryEnd::~BoundaryEnd() {
  {
    const MutexLock lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  // A sender that waits for room in a window that nobody empties any more must be woken.
  link_->abort(net::LinkError(net::LinkError::Kind::aborted, peer_ + ": this side has left"));
  sender_.join();
  receiver_.join();
}

void BoundaryEnd::send(codec::TensorHead head, at::Tensor tensor) {
  head.width = tensor.size(2);
  enqueue(Outgoing{std::move(head), std::move(tensor), {}});
}

void BoundaryEnd::send_note(net::Frame note) { enqueue(Outgoing{{}, {}, std::move(note)}); }

void BoundaryEnd::enqueue(Outgoing outgoing) {
  {
    const MutexLock lock(mutex_);
    throw_if_poisoned();
    if (outbox_bytes_ > kQueueBytes) {
      const WaitClock::Wait wait(waits_, "room in the window", *link_);
      while (outbox_bytes_ > kQueueBytes && error_ == nullptr) changed_.wait(mutex_);
      throw_if_poisoned();
    }
    if (outgoing.tensor.defined()) outbox_bytes_ += outgoing.tensor.nbytes();
    outbox_.push_back(std::move(outgoing));
  }
  changed_.notify_all();
}

Flow BoundaryEnd::take(codec::Kind kind, const Phase& phase, MicroBatch micro_batch) {
  Incoming incoming;
  {
    const MutexLock lock(mutex_);
    if (inbox_.empty()) {
      const WaitClock::Wait wait(
          waits_, fmt::format("{} of micro-batch {}", direction_word(kind), number(micro_batch)),
          *link_);
      while (inbox_.empty() && error_ == nullptr) changed_.wait(mutex_);
    }
    if (inbox_.empty()) throw_if_poisoned();
    incoming = std::move(inbox_.front());
    inbox_.pop_front();
    inbox_bytes_ -= incoming.tensor.nbytes();
  }
  changed_.notify_all();
  const codec::TensorHead& head = incoming.head;
  if (head.kind != kind || head.step != phase.step || head.evaluation == phase.training ||
      head.micro_batch != number(micro_batch)) {
    throw codec::CodecError(fmt::format(
        "{} sent the {} of step {} micro-batch {}{} where step {} micro-batch {}{} was expected",
        peer_, direction_word(head.kind), number(head.step), head.micro_batch,
        head.evaluation ? " (evaluation)" : "", number(phase.step), number(micro_batch),
        phase.training ? "" : " (evaluation)"));
  }
  return Flow{std::move(incoming.tensor), std::move(incoming.head.rows)};
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

net::Frame BoundaryEnd::encode(Outgoing& outgoing) {
  if (!outgoing.tensor.defined()) return std::move(outgoing.note);
  net::Frame frame;
  codec::write_head(outgoing.head, frame);
  codec::Encoder& encoder =
      outgoing.head.evaluation ? *codecs_.evaluation_encoder : *codecs_.encoder;
  encoder.encode(outgoing.tensor, outgoing.head.rows, frame);
  return frame;
}

void BoundaryEnd::send_loop() {
  try {
    while (true) {
      Outgoing outgoing;
      {
        const MutexLock lock(mutex_);
        while (outbox_.empty() && !closing_) changed_.wait(mutex_);
        if (closing_) return;
        outgoing = std::move(outbox_.front());
        outbox_.pop_front();
      }
      link_->send(encode(outgoing));
      {
        const MutexLock lock(mutex_);
        if (outgoing.tensor.defined()) outbox_bytes_ -= outgoing.tensor.nbytes();
      }
      changed_.notify_all();
    }
  } catch (const std::exception&) {
    poison(std::current_exception());
  }
}

void BoundaryEnd::receive_loop() {
  try {
    while (true) {
      {
        const MutexLock lock(mutex_);
        while (inbox_bytes_ > kQueueBytes && !closing_) changed_.wait(mutex_);
        if (closing_) return;
      }
      std::optional<net::Frame> frame =
          link_->receive_until(std::chrono::steady_clock::now() + kLook);
      if (frame) accept(std::move(*frame));
    }
  } catch (const std::exception&) {
    poison(std::current_exception());
  }
}

void BoundaryEnd::accept(net::Frame frame) {
  if (codec::kind_of(frame) == codec::Kind::note) {
    const MutexLock lock(mutex_);
    notes_.push_back(std::move(frame));
  } else {
    codec::ReadTensor read = codec::read_head(frame);
    codec::Decoder& decoder = read.head.evaluation ? *codecs_.evaluation_decoder : *codecs_.decoder;
    at::Tensor tensor = decoder.decode(read.payload, read.head.rows, read.head.width);
    const MutexLock lock(mutex_);
    inbox_bytes_ += tensor.nbytes();
    inbox_.push_back(Incoming{std::move(read.head), std::move(tensor)});
  }
  changed_.notify_all();
}

void BoundaryEnd::poison(std::exception_ptr error) {
  {
    const MutexLock lock(mutex_);
    if (error_ == nullptr) error_ = std::move(error);
  }
  changed_.notify_all();
}

void BoundaryEnd::throw_if_poisoned() const {
  if (error_ != nullptr) std::rethrow_exception(error_);
}

}  // namespace strait::stages

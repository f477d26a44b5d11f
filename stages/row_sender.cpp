#include "stages/row_sender.h"

#include <ATen/ATen.h>

#include "framework/codec/message.h"

namespace strait::stages {

RowSender::RowSender(net::Link& link) : link_(link), sender_([this] { send_loop(); }) {}

RowSender::~RowSender() {
  {
    const MutexLock lock(mutex_);
    closing_ = true;
    // The thread may wait for a window that the peer no longer empties; abort() wakes it.
    if (!outbox_.empty()) {
      link_.abort(net::LinkError(net::LinkError::Kind::aborted, "this side has closed"));
    }
  }
  changed_.notify_all();
  sender_.join();
}

void RowSender::send(codec::Encoder& encoder, codec::TensorHeader header, Copied tensor) {
  {
    const MutexLock lock(mutex_);
    if (error_ != nullptr) std::rethrow_exception(error_);
    outbox_.push_back({&encoder, std::move(header), std::move(tensor)});
  }
  changed_.notify_all();
}

net::Frame RowSender::receive() {
  try {
    return link_.receive();
    // The abort after a failed send also ends this call; the failed send is the cause.
  } catch (const net::LinkError&) {
    const MutexLock lock(mutex_);
    if (error_ != nullptr) std::rethrow_exception(error_);
    throw;
  }
}

void RowSender::send_loop() {
  try {
    while (true) {
      Outgoing outgoing;
      {
        const MutexLock lock(mutex_);
        while (outbox_.empty() && !closing_) changed_.wait(mutex_);
        if (closing_) return;
        outgoing = std::move(outbox_.front());
      }
      net::Frame frame;
      outgoing.encoder->encode(outgoing.header, Transfer::wait(std::move(outgoing.tensor)), frame);
      // Removed after it was sent: the destructor aborts the link if anything is still queued.
      link_.send(std::move(frame));
      const MutexLock lock(mutex_);
      outbox_.pop_front();
    }
  } catch (const std::exception& error) {
    {
      const MutexLock lock(mutex_);
      error_ = std::current_exception();
    }
    // There may be no further send() that would throw it, while both ends wait for what was not
    // sent.
    link_.abort(net::LinkError(net::LinkError::Kind::aborted, error.what()));
  }
}

}  // namespace strait::stages

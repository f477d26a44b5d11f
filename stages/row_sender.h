#pragma once

#include <exception>
#include <thread>

#include "framework/codec/codec.h"
#include "framework/mutex.h"
#include "framework/net/link.h"
#include "stages/transfer.h"

namespace strait::stages {

// Sends tensors over a link without headers, in the order in which they are given. A thread waits
// for their copy to the host, encodes and sends them. The compute thread never waits.
//
// Threads: one thread calls send(). For sending, only this object's thread uses the link and the
// encoders.
class RowSender {
 public:
  explicit RowSender(net::Link& link);
  // Aborts the link if something is still to be sent.
  ~RowSender();
  RowSender(const RowSender&) = delete;
  RowSender& operator=(const RowSender&) = delete;

  // `encoder` outlives this. Throws the error of an earlier send, which has also aborted the link.
  void send(codec::Encoder& encoder, codec::TensorHeader header, Copied tensor)
      STRAIT_EXCLUDES(mutex_);

  // A frame of the other end. If the link was aborted because a send failed, throws that error,
  // which is the cause.
  net::Frame receive() STRAIT_EXCLUDES(mutex_);

 private:
  struct Outgoing {
    codec::Encoder* encoder;
    codec::TensorHeader header;
    Copied tensor;
  };

  void send_loop() STRAIT_EXCLUDES(mutex_);

  net::Link& link_;
  Mutex mutex_;
  Condition changed_;
  std::deque<Outgoing> outbox_ STRAIT_GUARDED_BY(mutex_);
  std::exception_ptr error_ STRAIT_GUARDED_BY(mutex_);
  bool closing_ STRAIT_GUARDED_BY(mutex_) = false;
  std::thread sender_;  // declared last: it uses all of the above
};

}  // namespace strait::stages

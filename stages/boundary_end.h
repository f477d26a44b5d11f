#pragma once

#include <deque>
#include <exception>
#include <memory>
#include <string>
#include <thread>

#include "framework/codec/codec.h"
#include "framework/codec/message.h"
#include "framework/mutex.h"
#include "framework/net/link.h"
#include "stages/ports.h"
#include "stages/wait_clock.h"

namespace strait::stages {

// The codecs of one end of a boundary: what leaves is encoded, what arrives is decoded. Evaluation
// has its own pair, so that it never touches the state that training's codecs carry.
struct BoundaryCodecs {
  std::unique_ptr<codec::Encoder> encoder;
  std::unique_ptr<codec::Decoder> decoder;
  std::unique_ptr<codec::Encoder> evaluation_encoder;
  std::unique_ptr<codec::Decoder> evaluation_decoder;
};

// One end of a boundary: carries tensors and notes between the compute thread and a link. A thread
// encodes and sends, another receives and decodes, so that compute waits only when what it needs is
// not there, or when more than kQueueBytes wait to leave. An error on either thread poisons the
// end: every later call throws it.
//
// Threads: one compute thread calls send and take; link() may be read by any.
class BoundaryEnd {
 public:
  static constexpr std::size_t kQueueBytes = std::size_t{256} << 20;

  // `peer` is how reports call the other side: "stage 1 (host b)".
  BoundaryEnd(std::unique_ptr<net::Link> link, BoundaryCodecs codecs, WaitClock& waits,
              std::string peer);
  ~BoundaryEnd();
  BoundaryEnd(const BoundaryEnd&) = delete;
  BoundaryEnd& operator=(const BoundaryEnd&) = delete;

  // `head.rows` are those of the tensor; its width is filled in here.
  void send(codec::TensorHead head, at::Tensor tensor);
  void send_note(net::Frame note);

  // The next tensor, which must be this one: order is part of the protocol.
  Flow take(codec::Kind kind, const Phase& phase, MicroBatch micro_batch);
  net::Frame take_note(const std::string& what);

  net::Link& link() { return *link_; }

 private:
  struct Outgoing {
    codec::TensorHead head;
    at::Tensor tensor;  // undefined: a note
    net::Frame note;
  };
  struct Incoming {
    codec::TensorHead head;
    at::Tensor tensor;
  };

  void enqueue(Outgoing outgoing);
  net::Frame encode(Outgoing& outgoing);
  void send_loop();
  void receive_loop();
  void accept(net::Frame frame);
  void poison(std::exception_ptr error);
  void throw_if_poisoned() const STRAIT_REQUIRES(mutex_);

  const std::unique_ptr<net::Link> link_;
  const BoundaryCodecs codecs_;
  WaitClock& waits_;
  const std::string peer_;

  mutable Mutex mutex_;
  Condition changed_;
  std::deque<Outgoing> outbox_ STRAIT_GUARDED_BY(mutex_);
  std::size_t outbox_bytes_ STRAIT_GUARDED_BY(mutex_) = 0;
  std::deque<Incoming> inbox_ STRAIT_GUARDED_BY(mutex_);
  std::size_t inbox_bytes_ STRAIT_GUARDED_BY(mutex_) = 0;
  std::deque<net::Frame> notes_ STRAIT_GUARDED_BY(mutex_);
  std::exception_ptr error_ STRAIT_GUARDED_BY(mutex_);
  bool closing_ STRAIT_GUARDED_BY(mutex_) = false;

  std::thread sender_;
  std::thread receiver_;
};

}  // namespace strait::stages

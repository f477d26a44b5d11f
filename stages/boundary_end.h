#pragma once

#include <exception>
#include <thread>

#include "framework/codec/message.h"
#include "framework/mutex.h"
#include "framework/net/link.h"
#include "stages/boundary_codecs.h"
#include "stages/boundary_inbox.h"
#include "stages/boundary_spans.h"
#include "stages/ports.h"
#include "stages/transfer.h"
#include "stages/wait_clock.h"

namespace strait::stages {

// What the threads of an end have spent on tensors of training.
struct CodingSeconds {
  double encode = 0;
  double decode = 0;
};

// One end of a boundary: carries tensors of the stage's device, and notes, between the compute
// thread and a link. One thread encodes and sends; another receives and decodes. The compute thread
// waits only for a tensor that has not arrived, or while more than kQueueBytes wait to be sent. An
// error on either thread poisons the end: every later call throws it.
//
// A row is missing if the decoder does not hold the base of its change with the sender's bits. The
// threads of the two ends request and resend missing rows ahead of the queues. The tensor can be
// taken when it is complete; later tensors wait for it.
//
// Threads: one compute thread calls send and take; any thread calls link(), sent() and received().
class BoundaryEnd {
 public:
  static constexpr std::size_t kQueueBytes = std::size_t{256} << 20;

  // `peer` names the other side in reports: "stage 1 (host b)". `report_time`: from an error of its
  // threads until the peer is disconnected. In this time the next call throws the error and the
  // process reports it.
  BoundaryEnd(std::unique_ptr<net::Link> link, BoundaryCodecs codecs, WaitClock& waits,
              std::string peer, at::Device device = at::kCPU,
              std::chrono::milliseconds report_time = std::chrono::seconds(30),
              BoundarySpans spans = {});
  ~BoundaryEnd();
  BoundaryEnd(const BoundaryEnd&) = delete;
  BoundaryEnd& operator=(const BoundaryEnd&) = delete;

  // `header.rows` are the tensor's rows; header.width is set here.
  void send(codec::TensorHeader header, const at::Tensor& tensor);
  void send_note(net::Frame note);

  // The next tensor. CodecError if it is another one: the order is part of the protocol.
  Flow take(codec::Kind kind, const Phase& phase, MicroBatch micro_batch);
  // The next note. `what` names it in reports of waits.
  net::Frame take_note(const std::string& what);

  net::Link& link() { return *link_; }

  // Training traffic up to the last tensor that was encoded, or decoded, here.
  codec::Traffic sent() const STRAIT_EXCLUDES(mutex_);
  codec::Traffic received() const STRAIT_EXCLUDES(mutex_);
  // Since the last call.
  CodingSeconds take_coding() STRAIT_EXCLUDES(mutex_);

 private:
  struct Outgoing {
    codec::TensorHeader header;  // of a tensor, or of a message about rows of a tensor
    Copied tensor;               // on its way to the host; undefined for a message about rows
    net::Frame note;             // empty for both

    std::size_t bytes() const { return tensor.tensor.defined() ? tensor.tensor.nbytes() : 0; }
  };

  void enqueue(Outgoing outgoing) STRAIT_EXCLUDES(mutex_);
  void enqueue_first(codec::TensorHeader rows_message) STRAIT_EXCLUDES(mutex_);
  net::Frame encode(Outgoing& outgoing) STRAIT_EXCLUDES(mutex_);
  void send_loop() STRAIT_EXCLUDES(mutex_);
  void receive_loop() STRAIT_EXCLUDES(mutex_);
  BoundarySpans::Message accept(net::Frame frame) STRAIT_EXCLUDES(mutex_);
  void accept_tensor(codec::ReadTensor read) STRAIT_EXCLUDES(mutex_);
  void accept_resent_rows(const codec::ReadTensor& read) STRAIT_EXCLUDES(mutex_);
  // Called in a handler of this exception.
  void poison(const std::exception& error) STRAIT_EXCLUDES(mutex_);
  void throw_if_poisoned() const STRAIT_REQUIRES(mutex_);

  const std::unique_ptr<net::Link> link_;
  const BoundaryCodecs codecs_;
  WaitClock& waits_;
  const std::string peer_;
  Transfer transfer_;
  const std::chrono::milliseconds report_time_;
  BoundarySpans spans_;

  mutable Mutex mutex_;
  Condition changed_;
  std::deque<Outgoing> outbox_ STRAIT_GUARDED_BY(mutex_);
  // Includes the tensor that is now encoded and sent.
  std::size_t outbox_bytes_ STRAIT_GUARDED_BY(mutex_) = 0;
  BoundaryInbox inbox_ STRAIT_GUARDED_BY(mutex_);
  std::deque<net::Frame> notes_ STRAIT_GUARDED_BY(mutex_);
  codec::Traffic sent_ STRAIT_GUARDED_BY(mutex_);
  codec::Traffic received_ STRAIT_GUARDED_BY(mutex_);
  CodingSeconds coding_ STRAIT_GUARDED_BY(mutex_);
  std::exception_ptr error_ STRAIT_GUARDED_BY(mutex_);
  bool closing_ STRAIT_GUARDED_BY(mutex_) = false;

  // Declared last, because the threads use all of the above.
  std::thread sender_;
  std::thread receiver_;
};

}  // namespace strait::stages

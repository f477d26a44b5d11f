#pragma once

#include "framework/trace/span_log.h"

namespace strait::stages {

// What the two threads of an end of a boundary do with each message, as four rows of the trace:
// encode, send, receive, decode. The link keeps the order, so both ends count to the same number of
// a message, and a merged trace connects them.
//
// Threads: the sending thread calls sent(), the receiving one received().
class BoundarySpans {
 public:
  struct Message {
    const char* name = "";          // "activation"
    std::int64_t micro_batch = -1;  // -1: of none
    std::int64_t bytes = 0;         // as encoded
  };
  struct End {
    std::string boundary;      // "0.0>1.0"
    std::uint64_t number = 0;  // of the boundary in the run, the same at both ends
    bool sends_activations = false;
  };

  BoundarySpans() = default;  // records nothing
  BoundarySpans(trace::SpanLog& log, const End& end);

  // Times: the encoding begins, ends, and the link has taken the message.
  void sent(const Message& message, trace::Nanoseconds encodes, trace::Nanoseconds sends,
            trace::Nanoseconds taken);
  // Times: the thread waits for a message, has it, and has decoded it.
  void received(const Message& message, trace::Nanoseconds waits, trace::Nanoseconds arrived,
                trace::Nanoseconds decoded);

 private:
  trace::SpanLog* log_ = nullptr;
  int encode_ = 0;  // rows
  int send_ = 0;
  int receive_ = 0;
  int decode_ = 0;
  std::uint64_t next_sent_ = 0;  // numbers of messages
  std::uint64_t next_received_ = 0;
};

}  // namespace strait::stages

#pragma once

#include "framework/codec/codec.h"
#include "framework/codec/message.h"
#include "stages/transfer.h"

namespace strait::stages {

// Tensors that arrived over a boundary and have not been taken, in order of arrival. A tensor with
// missing rows keeps its position and is not ready until they are resent, so that no other
// overtakes it. Not thread safe: the owner locks.
class BoundaryInbox {
 public:
  struct Arrived {
    codec::TensorHeader header;
    Copied values;                      // on the stage's device when no row is missing
    std::vector<std::int64_t> missing;  // indices of rows
  };

  void push(Arrived arrived);
  bool empty() const { return arrived_.empty(); }
  bool ready() const { return !arrived_.empty() && arrived_.front().missing.empty(); }
  Arrived pop();  // only when ready()

  std::size_t bytes() const { return bytes_; }
  bool waits_for_rows() const { return incomplete_ > 0; }

  // The incomplete tensor to which the resent rows belong; shares its memory. CodecError if these
  // rows were not requested.
  codec::Decoded requested(const codec::TensorHeader& resent) const;
  // Its missing rows have been filled in with these values, so it can be taken.
  void complete(const codec::TensorHeader& resent, Copied values);

 private:
  std::size_t find(const codec::TensorHeader& resent) const;

  std::deque<Arrived> arrived_;
  std::size_t bytes_ = 0;
  std::size_t incomplete_ = 0;  // number of tensors
};

// The header of a message about some rows of a tensor, given by their index: the request to resend
// them, and the reply.
codec::TensorHeader rows_message(codec::Kind kind, const codec::TensorHeader& tensor,
                                 const std::vector<std::int64_t>& rows);

}  // namespace strait::stages

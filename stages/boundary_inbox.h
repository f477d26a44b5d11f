#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "framework/codec/codec.h"
#include "framework/codec/message.h"

namespace strait::stages {

// Tensors that came over a boundary and were not taken yet, in the order in which they came. One
// that lacks rows keeps its place and is not ready before their answer is there, so nothing
// overtakes it. Plain data: the owner locks.
class BoundaryInbox {
 public:
  struct Arrived {
    codec::TensorHeader head;
    codec::Decoded decoded;
  };

  void push(codec::TensorHeader head, codec::Decoded decoded);
  bool empty() const { return arrived_.empty(); }
  bool ready() const { return !arrived_.empty() && arrived_.front().decoded.missing.empty(); }
  Arrived pop();  // only when ready()

  std::size_t bytes() const { return bytes_; }
  bool waits_for_rows() const { return incomplete_ > 0; }

  // The tensor that `answer` completes; shares its memory. Throws CodecError where no such rows
  // were asked for.
  codec::Decoded asked_for(const codec::TensorHeader& answer) const;
  // ... and now it is complete.
  void complete(const codec::TensorHeader& answer);

 private:
  std::size_t place_of(const codec::TensorHeader& answer) const;

  std::deque<Arrived> arrived_;
  std::size_t bytes_ = 0;
  std::size_t incomplete_ = 0;
};

// The message that asks for rows of a tensor by their places in it, and in the same form the head
// of its answer.
codec::TensorHeader about_rows(codec::Kind kind, const codec::TensorHeader& tensor,
                               const std::vector<std::int64_t>& places);

}  // namespace strait::stages

#include "stages/weight_tie.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <cstring>

#include "framework/codec/message.h"

namespace strait::stages {

void LocalTie::combine(Gradients& gradients) { gradients.of(embedding_).add_(gradients.of(head_)); }

void LinkTie::combine(Gradients& gradients) {
  at::Tensor& mine = gradients.of(own_);
  net::Frame frame(mine.nbytes());
  std::memcpy(frame.data(), mine.cpu().const_data_ptr(), frame.size());
  // Both ends send before they receive, so neither waits for the other.
  link_->send(std::move(frame));
  const WaitClock::Wait wait(waits_, "the gradient of a tied weight", *link_);
  const net::Frame theirs = link_->receive();
  if (theirs.size() != mine.nbytes()) {
    throw codec::CodecError(
        fmt::format("invalid gradient of a tied weight: {} bytes where {} were expected",
                    theirs.size(), mine.nbytes()));
  }
  at::Tensor other = at::empty(mine.sizes(), at::kFloat);
  std::memcpy(other.mutable_data_ptr(), theirs.data(), theirs.size());
  mine.add_(other.to(mine.device()));
}

}  // namespace strait::stages

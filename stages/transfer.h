#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>
#include <c10/core/StreamGuard.h>

#include <deque>
#include <memory>
#include <optional>
#include <utility>

#include "framework/codec/tensor_pool.h"

namespace strait::stages {

// A tensor, and when it holds its values: a copy to it may be on its way. On the CPU there is none.
struct Copied {
  at::Tensor tensor;
  std::shared_ptr<const c10::Event> done = {};  // null: it holds them
};

// Copies tensors between a stage's device and memory of the host, beside compute: on two streams of
// its own, through pinned memory that is reused. Nothing here waits for the device but wait(),
// which is for threads of codecs. On the CPU nothing is copied, and nothing costs anything: every
// call returns the tensor that it was given.
//
// Threads: to_host(), lend() and arrive() for the thread whose current stream computes, to_device()
// for one other thread.
class Transfer {
 public:
  explicit Transfer(at::Device device);

  // What the tensor holds when the current stream has come to this call. The tensor may be dropped,
  // but not changed before the copy is done.
  Copied to_host(const at::Tensor& tensor);
  // For an encoder that takes the device's tensors: this one, which is not changed any more.
  Copied lend(const at::Tensor& tensor) const;
  // For threads of codecs: the host's tensor, whose values are there; or one that was lent, for
  // work on the current stream that is waited for before the tensor is dropped.
  static at::Tensor wait(Copied copied);

  // The current stream of a codec's thread while this lives: for what is encoded, or decoded.
  c10::OptionalStreamGuard sending() const { return c10::OptionalStreamGuard(down_); }
  c10::OptionalStreamGuard receiving() const { return c10::OptionalStreamGuard(up_); }

  // A tensor of the CPU, which is not changed any more and may be dropped; or of the device, made
  // by the current stream.
  Copied to_device(at::Tensor host);
  // The device's tensor, for work on the current stream from now on.
  at::Tensor arrive(Copied copied) const;

 private:
  // Pinned memory of tensors like this one, which is used again when all have dropped it.
  class Pinned {
   public:
    at::Tensor take(const at::Tensor& like);

   private:
    std::deque<std::pair<at::ScalarType, codec::TensorPool>> pools_;  // by element type
  };

  const at::Device device_;
  std::optional<c10::Stream> down_;  // none of the CPU
  std::optional<c10::Stream> up_;
  Pinned going_down_;
  Pinned going_up_;
  // What copies to the device read, the oldest first.
  std::deque<Copied> uploads_;
};

}  // namespace strait::stages

#pragma once

#include <c10/core/Event.h>
#include <c10/core/Stream.h>
#include <c10/core/StreamGuard.h>

#include <deque>
#include <memory>
#include <optional>
#include <utility>

#include "framework/codec/tensor_pool.h"

namespace strait::stages {

// A tensor, and an event after which it holds its values, if a copy to it may be in progress. On
// the CPU there is no event.
struct Copied {
  at::Tensor tensor;
  std::shared_ptr<const c10::Event> done = {};  // null: the values are there
};

// Copies tensors between a stage's device and host memory during compute: on its own two streams,
// through pinned memory that is reused. Only wait() waits for the device; it is for threads of
// codecs. On the CPU nothing is copied: every call returns its argument.
//
// Threads: the thread whose current stream computes calls to_host(), lend() and arrive(); one other
// thread calls to_device().
class Transfer {
 public:
  explicit Transfer(at::Device device);

  // The values that the tensor has when the current stream reaches this call. The tensor may be
  // dropped, but not changed, before the copy is done.
  Copied to_host(const at::Tensor& tensor);
  // For an encoder that takes tensors of the device: this tensor itself, which must not change any
  // more.
  Copied lend(const at::Tensor& tensor) const;
  // For threads of codecs: the host's tensor with its values. For a lent tensor: makes the current
  // stream wait for it; wait for that stream before dropping the tensor.
  static at::Tensor wait(Copied copied);

  // Makes a codec's thread use this stream while the guard lives: to encode, or to decode.
  c10::OptionalStreamGuard sending() const { return c10::OptionalStreamGuard(down_); }
  c10::OptionalStreamGuard receiving() const { return c10::OptionalStreamGuard(up_); }

  // A tensor of the CPU, which must not change any more and may be dropped; or one of the device,
  // computed by the current stream.
  Copied to_device(at::Tensor host);
  // The device's tensor, for work on the current stream from now on.
  at::Tensor arrive(Copied copied) const;

 private:
  // Pinned memory for tensors like this one; reused when all users have dropped it.
  class Pinned {
   public:
    at::Tensor take(const at::Tensor& like);

   private:
    std::deque<std::pair<at::ScalarType, codec::TensorPool>> pools_;  // by element type
  };

  const at::Device device_;
  std::optional<c10::Stream> down_;  // none on the CPU
  std::optional<c10::Stream> up_;
  Pinned going_down_;
  Pinned going_up_;
  // The sources of copies to the device, oldest first.
  std::deque<Copied> uploads_;
};

}  // namespace strait::stages

#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "framework/codec/tensor_pool.h"

namespace strait::stages {

// Keeps what autograd has saved for the backwards of waiting micro-batches in host memory, instead
// of that of the device. Copies run on two streams of their own during compute; the host waits for
// none. Bits, strides and views come back as they were.
//
// Only what belongs to the graph alone leaves: not weights, tables that several passes read, or
// what a boundary still sends.
//
// Used only by the compute thread. Outlives the graphs that it recorded.
class ActivationOffload {
 public:
  // A stage's device holds this number of passes at the most: one in its backward, the next one,
  // which comes back, and one that leaves or is in its forward.
  static constexpr int kPassesOnDevice = 3;

  // To start a copy of fewer bytes takes longer than the copy.
  static constexpr std::int64_t kSmallest = 64 << 10;

  // Storages of fewer than `smallest` bytes stay on the device.
  ActivationOffload(at::Device device, std::int64_t smallest);

  // The bytes of one storage, which several saved tensors may view.
  struct Storage {
    std::int64_t size = 0;
    std::int64_t start = 0;  // in the host memory of the pass
    at::Tensor bytes;        // on the device; undefined: only in host memory
  };

  // What the graph of one forward has saved.
  struct Pass {
    std::vector<std::shared_ptr<Storage>> storages;  // in the order of the forward
    // The same during the forward, by address: the pass holds them, so no address is used again.
    std::unordered_map<const c10::StorageImpl*, std::shared_ptr<Storage>> by_address;
    std::vector<at::Tensor> host;            // pinned pieces
    std::shared_ptr<const c10::Event> left;  // after which the pieces hold the values
    std::shared_ptr<const c10::Event> back;  // after which the device holds them again
  };

  // While it lives, what autograd saves on this thread belongs to the pass.
  class Recording {
   public:
    Recording(const ActivationOffload& offload, Pass& pass);
    Recording(const Recording&) = delete;
    Recording& operator=(const Recording&) = delete;
    ~Recording();
  };

  // After its forward, and after settle(): begins to copy the pass to host memory.
  void leave(Pass& pass);
  // Frees the memory of passes that have left. Later work on the current stream waits for the
  // copies, so call it when they have had an operation's time.
  void settle();
  // Begins to copy the pass back; nothing happens if it has not left, or is coming.
  void come_back(Pass& pass);
  // Work on the current stream finds the pass on the device from now on.
  void arrive(Pass& pass);

 private:
  const at::Device device_;
  const std::int64_t smallest_;
  const c10::Stream down_;
  const c10::Stream up_;
  codec::TensorPool pieces_;
  // The one that left last, until settle().
  std::vector<std::shared_ptr<Storage>> leaving_;
  std::shared_ptr<const c10::Event> left_;
};

}  // namespace strait::stages

#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "framework/codec/tensor_pool.h"
#include "kernels/gpu_rows.h"

namespace strait::codec {

// The rows of a message for the kernels of a device (kernels/gpu_rows.h), one message at a time:
// the pinned memory that they read and write, and the event behind them. Kernels are put on the
// current stream of the device, which is the same at every call.
class DeviceRows {
 public:
  explicit DeviceRows(at::Device device) : device_(device) {}
  // Waits: payload and entries are given back with it.
  ~DeviceRows();
  DeviceRows(const DeviceRows&) = delete;
  DeviceRows& operator=(const DeviceRows&) = delete;

  at::Device device() const { return device_; }

  // Pinned memory for the payload of the next call, until it is asked for again. Waits for the last
  // call's work.
  std::span<std::byte> payload(std::size_t size);

  // The sums of the rows may be read after wait().
  void encode(const kernels::RowShape& shape, std::span<const kernels::GpuRow> rows);
  const kernels::SquareSums& sums(std::size_t row) const;
  void decode(const kernels::RowShape& shape, std::span<const kernels::GpuRow> rows);

  // Until the last call's work is done: then payload and entries are the host's to use.
  void wait();

 private:
  void note_queued();

  const at::Device device_;
  TensorPool pinned_{at::kByte, /*pinned=*/true};
  at::Tensor payload_;
  at::Tensor sums_;     // pinned
  at::Tensor scratch_;  // of the sums, on the device
  std::optional<c10::Event> queued_;
};

}  // namespace strait::codec

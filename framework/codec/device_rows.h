#pragma once

#include <c10/core/Event.h>

#include <optional>

#include "framework/codec/tensor_pool.h"
#include "kernels/gpu_rows.h"

namespace strait::codec {

// Prepares the rows of one message for the kernels of a device (kernels/gpu_rows.h): owns the
// pinned memory that they use and the event that follows them. Kernels run on the device's current
// stream, which must be the same at every call.
class DeviceRows {
 public:
  explicit DeviceRows(at::Device device) : device_(device) {}
  // Waits, because payload and entries are freed with this object.
  ~DeviceRows();
  DeviceRows(const DeviceRows&) = delete;
  DeviceRows& operator=(const DeviceRows&) = delete;

  at::Device device() const { return device_; }

  // Pinned memory for the payload of the next call, valid until the next payload(). Waits for the
  // work of the previous call.
  std::span<std::byte> payload(std::size_t size);

  // The sums of the rows may be read after wait().
  void encode(const kernels::RowShape& shape, std::span<const kernels::GpuRow> rows);
  const kernels::SquareSums& sums(std::size_t row) const;
  void decode(const kernels::RowShape& shape, std::span<const kernels::GpuRow> rows);

  // Waits until the work of the last call is done. Payload and entries then belong to the host.
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

#include "framework/codec/device_rows.h"

#include <ATen/ATen.h>

#include <array>
#include <exception>

#include "kernels/current_stream.h"

namespace strait::codec {
namespace {

at::Tensor pinned_bytes(TensorPool& pool, std::size_t size) {
  const std::array<std::int64_t, 1> shape{static_cast<std::int64_t>(size)};
  return pool.take(shape);
}

}  // namespace

DeviceRows::~DeviceRows() {
  try {
    wait();
  } catch (const std::exception&) {
    // The device has failed. The error appears where a result is read.
  }
}

std::span<std::byte> DeviceRows::payload(std::size_t size) {
  // The kernels of the previous call may still read the old payload.
  wait();
  payload_.reset();
  payload_ = pinned_bytes(pinned_, size);
  return {static_cast<std::byte*>(payload_.mutable_data_ptr()), size};
}

void DeviceRows::encode(const kernels::RowShape& shape, std::span<const kernels::GpuRow> rows) {
  wait();
  std::int64_t tokens = 0;
  for (const kernels::GpuRow& row : rows) tokens += row.tokens;
  sums_.reset();
  sums_ = pinned_bytes(pinned_, rows.size() * sizeof(kernels::SquareSums));
  const std::int64_t scratch = kernels::sums_scratch_bytes(tokens);
  // Zeroed only once: the kernels reset the counters in it after every message.
  if (!scratch_.defined() || scratch_.numel() < scratch) {
    scratch_ = at::zeros({scratch}, at::TensorOptions().dtype(at::kByte).device(device_));
  }
  kernels::encode_rows(kernels::current_stream(device_).native_handle(), shape, rows,
                       {static_cast<kernels::SquareSums*>(sums_.mutable_data_ptr()),
                        static_cast<std::byte*>(scratch_.mutable_data_ptr())});
  note_queued();
}

const kernels::SquareSums& DeviceRows::sums(std::size_t row) const {
  return static_cast<const kernels::SquareSums*>(sums_.const_data_ptr())[row];
}

void DeviceRows::decode(const kernels::RowShape& shape, std::span<const kernels::GpuRow> rows) {
  kernels::decode_rows(kernels::current_stream(device_).native_handle(), shape, rows);
  note_queued();
}

void DeviceRows::note_queued() {
  if (!queued_) queued_.emplace(device_.type());
  queued_->record(kernels::current_stream(device_));
}

void DeviceRows::wait() {
  if (!queued_) return;
  queued_->synchronize();
  queued_.reset();
}

}  // namespace strait::codec

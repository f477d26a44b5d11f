#pragma once

#include "framework/codec/activation_cache.h"
#include "framework/codec/codec.h"
#include "framework/codec/device_rows.h"
#include "framework/codec/sample_format.h"
#include "framework/codec/tensor_pool.h"
#include "framework/codec/wide_row.h"

namespace strait::codec {

// The other end of SampleEncoder. A row whose base is not cached here, or has another hash than at
// the sender, is reported as missing; its values are unset until complete(). A cached row decodes
// to the values of its entry, bit for bit.
//
// With a device, values are computed there in one launch. The CPU computes the rows that the
// kernels cannot: bfloat16 rows, and rows whose entries are on disk. Both give the same bits.
//
// In a steady state decode() does not allocate, provided that callers release its tensors.
class SampleDecoder final : public Decoder {
 public:
  // Without a cache, a row that is to be cached is a CodecError.
  SampleDecoder(at::ScalarType result, std::unique_ptr<ActivationCache> cache,
                at::Device device = at::kCPU);

  Decoded decode(const TensorHeader& header, std::span<const std::byte> payload) override;
  void complete(const TensorHeader& header, std::span<const std::byte> payload,
                std::span<const std::int64_t> places, const at::Tensor& values) override;
  Traffic traffic() const override;
  ActivationCache* cache() { return cache_.get(); }

 private:
  void pin(const TensorHeader& header, SamplePayload payload);
  bool fits_device(const TensorHeader& header, SamplePayload payload);
  Decoded decode_on_host(const TensorHeader& header, SamplePayload& rows);
  Decoded decode_on_device(const TensorHeader& header, std::span<const std::byte> payload,
                           SamplePayload& rows);
  // The entry that a row is decoded with; nullopt: it is missing.
  std::optional<std::span<std::byte>> base_of(const SamplePayload::Part& part, const Row& row,
                                              std::int64_t width);
  std::span<std::byte> room_for(store::SampleId sample, std::int64_t tokens);
  void decode_row(const SamplePayload::Part& part, int group, std::span<std::byte> entry,
                  const kernels::MutableValues& out);

  at::ScalarType result_;
  kernels::Element element_;
  std::unique_ptr<ActivationCache> cache_;
  WideRow wide_;
  TensorPool pool_;
  std::optional<DeviceRows> device_;
  std::vector<kernels::GpuRow> device_rows_;  // of the current message
  std::vector<store::SampleId> samples_;      // the same
  Traffic traffic_;
};

}  // namespace strait::codec

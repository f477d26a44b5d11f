#pragma once

#include <memory>

#include "framework/codec/activation_cache.h"
#include "framework/codec/codec.h"
#include "framework/codec/sample_format.h"
#include "framework/codec/tensor_pool.h"
#include "framework/codec/wide_row.h"

namespace strait::codec {

// The other end of SampleEncoder. A row whose base is not cached here, or has another hash than
// the sender's, is reported as missing; its values are unset until complete(). The values of a
// cached row are those of its entry, bit for bit.
//
// In a steady state decode() allocates nothing, provided that its callers drop its tensors.
class SampleDecoder final : public Decoder {
 public:
  // Without a cache, a row that is to be cached is a CodecError.
  SampleDecoder(at::ScalarType result, std::unique_ptr<ActivationCache> cache);

  Decoded decode(const TensorHeader& head, std::span<const std::byte> payload) override;
  void complete(const TensorHeader& head, std::span<const std::byte> payload,
                std::span<const std::int64_t> places, const at::Tensor& values) override;
  Traffic traffic() const override;
  ActivationCache* cache() { return cache_.get(); }

 private:
  Memory memory() const;
  void check_fits(const TensorHeader& head) const;
  void pin(const TensorHeader& head, SamplePayload payload);
  std::span<std::byte> room_for(store::SampleId sample, std::int64_t tokens);
  bool decode_row(const SamplePayload::Part& part, int group, store::SampleId sample,
                  const kernels::MutableValues& out);

  at::ScalarType result_;
  kernels::Element element_;
  std::unique_ptr<ActivationCache> cache_;
  WideRow wide_;
  TensorPool pool_;
  Traffic traffic_;
};

}  // namespace strait::codec

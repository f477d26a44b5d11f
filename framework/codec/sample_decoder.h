#pragma once

#include <memory>

#include "framework/codec/activation_cache.h"
#include "framework/codec/codec.h"
#include "framework/codec/tensor_pool.h"

namespace strait::codec {

// The other end of SampleEncoder. A row that builds on an entry which is not here, or whose hash
// is not the sender's, is reported as missing; nothing of it is used before complete().
class SampleDecoder final : public Decoder {
 public:
  // Without a cache no row may ask to be remembered.
  SampleDecoder(at::ScalarType result, std::unique_ptr<ActivationCache> cache);
  ~SampleDecoder() override;

  Decoded decode(const TensorHead& head, std::span<const std::byte> payload) override;
  void complete(const TensorHead& head, std::span<const std::byte> payload,
                std::span<const std::int64_t> places, const at::Tensor& values) override;
  Traffic traffic() const override;
  ActivationCache* cache() { return cache_.get(); }

 private:
  at::ScalarType result_;
  std::unique_ptr<ActivationCache> cache_;
  TensorPool pool_;
  Traffic traffic_;
};

}  // namespace strait::codec

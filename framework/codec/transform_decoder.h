#pragma once

#include "framework/codec/activation_cache.h"
#include "framework/codec/codec.h"
#include "framework/codec/sample_decoder.h"
#include "framework/codec/transform_state.h"

namespace strait::codec {

// The other end of TransformEncoder. A row whose entry is not held here with the sender's bits is
// reported as missing; its values are unset until complete().
class TransformDecoder final : public Decoder {
 public:
  TransformDecoder(at::ScalarType result, std::unique_ptr<ActivationCache> cache);

  Decoded decode(const TensorHeader& header, std::span<const std::byte> payload) override;
  void complete(const TensorHeader& header, std::span<const std::byte> payload,
                std::span<const std::int64_t> places, const at::Tensor& values) override;
  Traffic traffic() const override;
  ActivationCache* cache() { return cache_.get(); }

 private:
  void begin_step(const TensorHeader& header);
  // Coordinates of all tokens, float32 [tokens, width].
  at::Tensor read_gradients(const TransformMessage& message) const;
  at::Tensor read_rows(const TensorHeader& header, const TransformMessage& message,
                       std::vector<std::int64_t>& missing);
  bool add_levels(const Row& row, const TransformRow& sent, std::span<const std::int32_t> levels,
                  std::int64_t units, std::vector<std::int16_t>& entry);
  void keep(const Row& row, std::span<const std::byte> entry);

  at::ScalarType result_;
  std::unique_ptr<ActivationCache> cache_;
  SampleDecoder groups_;  // without a cache
  std::optional<store::Step> step_;
  TransformState state_;
  Traffic traffic_;
};

}  // namespace strait::codec

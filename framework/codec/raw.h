#pragma once

#include "framework/codec/codec.h"
#include "framework/codec/tensor_pool.h"

namespace strait::codec {

// Sends the elements in float32, bfloat16 or float16: the baseline. In the tensor's own type a
// round trip keeps the same bits. Stateless.
class RawEncoder final : public Encoder {
 public:
  explicit RawEncoder(at::ScalarType wire) : wire_(wire), pool_(wire) {}
  void encode(const TensorHeader& header, const at::Tensor& tensor, net::Frame& frame) override;
  Traffic traffic() const override { return traffic_; }

 private:
  at::ScalarType wire_;
  TensorPool pool_;
  Traffic traffic_;
};

class RawDecoder final : public Decoder {
 public:
  RawDecoder(at::ScalarType wire, at::ScalarType result)
      : wire_(wire), result_(result), wire_pool_(wire), result_pool_(result) {}
  Decoded decode(const TensorHeader& header, std::span<const std::byte> payload) override;
  Traffic traffic() const override { return traffic_; }

 private:
  at::ScalarType wire_;
  at::ScalarType result_;
  TensorPool wire_pool_;
  TensorPool result_pool_;
  Traffic traffic_;
};

}  // namespace strait::codec

#pragma once

#include <ATen/core/Tensor.h>

#include "framework/codec/codec.h"

namespace strait::codec {

// The elements as they are, in float32, bfloat16 or float16: the baseline. In the tensor's own type
// a round trip gives the same bits. Stateless.
class RawEncoder final : public Encoder {
 public:
  explicit RawEncoder(at::ScalarType wire) : wire_(wire) {}
  void encode(const at::Tensor& tensor, const Rows& rows, net::Frame& frame) override;

 private:
  at::ScalarType wire_;
};

class RawDecoder final : public Decoder {
 public:
  RawDecoder(at::ScalarType wire, at::ScalarType result) : wire_(wire), result_(result) {}
  at::Tensor decode(std::span<const std::byte> payload, const Rows& rows,
                    std::int64_t width) override;

 private:
  at::ScalarType wire_;
  at::ScalarType result_;
};

}  // namespace strait::codec

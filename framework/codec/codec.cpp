#include "framework/codec/codec.h"

namespace strait::codec {

void Encoder::encode_whole(const TensorHeader& header, net::Frame& frame) {
  static_cast<void>(header);
  static_cast<void>(frame);
  throw CodecError("a peer requests cached rows, but this codec has no cache");
}

void Decoder::complete(const TensorHeader& header, std::span<const std::byte> payload,
                       std::span<const std::int64_t> places, const at::Tensor& values) {
  static_cast<void>(header);
  static_cast<void>(payload);
  static_cast<void>(places);
  static_cast<void>(values);
  throw CodecError("a peer sends cached rows, but this codec requested none");
}

at::ScalarType scalar_type(WireDtype dtype) {
  switch (dtype) {
    case WireDtype::bfloat16:
      return at::kBFloat16;
    case WireDtype::float16:
      return at::kHalf;
    case WireDtype::float32:
      break;
  }
  return at::kFloat;
}

}  // namespace strait::codec

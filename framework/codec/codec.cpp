#include "framework/codec/codec.h"

#include "framework/codec/message.h"

namespace strait::codec {

void Encoder::encode_whole(const TensorHeader& head, net::Frame& frame) {
  static_cast<void>(head);
  static_cast<void>(frame);
  throw CodecError("a peer requests cached rows, but this codec has no cache");
}

void Decoder::complete(const TensorHeader& head, std::span<const std::byte> payload,
                       std::span<const std::int64_t> places, const at::Tensor& values) {
  static_cast<void>(head);
  static_cast<void>(payload);
  static_cast<void>(places);
  static_cast<void>(values);
  throw CodecError("a peer sends cached rows, but this codec requested none");
}

}  // namespace strait::codec

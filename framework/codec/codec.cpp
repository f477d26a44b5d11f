#include "framework/codec/codec.h"

#include "framework/codec/codec_error.h"

namespace strait::codec {

void Encoder::encode_whole(const TensorHeader& head, net::Frame& frame) {
  static_cast<void>(head);
  static_cast<void>(frame);
  throw CodecError(
      "a peer asks for rows as this end remembers them, but this codec remembers none");
}

void Decoder::complete(const TensorHeader& head, std::span<const std::byte> payload,
                       std::span<const std::int64_t> places, const at::Tensor& values) {
  static_cast<void>(head);
  static_cast<void>(payload);
  static_cast<void>(places);
  static_cast<void>(values);
  throw CodecError("a peer sends rows as it remembers them, but this codec asked for none");
}

}  // namespace strait::codec

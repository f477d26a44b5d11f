#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <memory>
#include <span>

#include "framework/codec/rows.h"
#include "framework/net/link.h"

namespace strait::codec {

// Tensor to bytes. One object per direction of one boundary; what state it has moves only by the
// bytes it writes. Called by one thread at a time, in the order in which the frames leave.
class Encoder {
 public:
  Encoder() = default;
  Encoder(const Encoder&) = delete;
  Encoder& operator=(const Encoder&) = delete;
  virtual ~Encoder() = default;

  // Appends the payload of `tensor` [rows, padded_length, width] to `frame`; padding is left out.
  virtual void encode(const at::Tensor& tensor, const Rows& rows, net::Frame& frame) = 0;
};

// Bytes to tensor: the other end of an Encoder, fed the same payloads in the same order.
class Decoder {
 public:
  Decoder() = default;
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;
  virtual ~Decoder() = default;

  // The tensor [rows, padded_length, width]; padding is zero. Throws CodecError where the payload
  // does not fit the rows.
  virtual at::Tensor decode(std::span<const std::byte> payload, const Rows& rows,
                            std::int64_t width) = 0;
};

}  // namespace strait::codec

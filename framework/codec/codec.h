#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "framework/codec/message.h"
#include "framework/codec/traffic.h"
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

  // Appends the payload of `tensor` [rows, padded_length, width] to `frame`, which holds the head
  // already; padding is left out.
  virtual void encode(const TensorHead& head, const at::Tensor& tensor, net::Frame& frame) = 0;

  // The peer lacks what a message of this step built on: appends head.rows as this end holds them
  // after that message. Throws CodecError where nothing is held.
  virtual void encode_whole(const TensorHead& head, net::Frame& frame);

  // So far, since this object was made.
  virtual Traffic traffic() const = 0;
};

// A tensor as far as one message told it. `missing` are the rows (by their place) whose base this
// end does not hold, or not in the sender's bits: their values are not set before complete().
struct Decoded {
  at::Tensor values;  // [rows, padded_length, width]; padding is zero
  std::vector<std::int64_t> missing;
};

// Bytes to tensor: the other end of an Encoder, fed the same payloads in the same order.
class Decoder {
 public:
  Decoder() = default;
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;
  virtual ~Decoder() = default;

  // Throws CodecError where the payload does not fit the head.
  virtual Decoded decode(const TensorHead& head, std::span<const std::byte> payload) = 0;

  // `payload` is what encode_whole() wrote for the missing rows of `values`; head.rows are those
  // rows, `places` where they stand in `values`.
  virtual void complete(const TensorHead& head, std::span<const std::byte> payload,
                        std::span<const std::int64_t> places, const at::Tensor& values);

  virtual Traffic traffic() const = 0;
};

}  // namespace strait::codec
